"""The Textual interface: the only importer of textual."""
