"""Data that ships with aios-chat: model manifests, prompts, sample files."""
