"""Dropped paths: parse, classify, stage."""
