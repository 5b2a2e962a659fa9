"""The models of the starter: what they are (manifest) and how they arrive (fetch)."""
