"""Readers of model files: one GGUF file, or a Hugging Face folder of safetensors."""
