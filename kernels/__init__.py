"""Triton kernels, each beside its plain torch twin."""
