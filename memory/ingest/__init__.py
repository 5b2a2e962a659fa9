"""Files in, text with its places out: one reader per kind of file."""
