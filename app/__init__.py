"""The desk: all that a person touches."""
