"""The terminal interface, in Textual. The only package that imports it."""
