"""Checks of this machine, one a file: each says ok, warning or failure, and the fix."""
