"""The disk: documents and turns in, passages out."""
