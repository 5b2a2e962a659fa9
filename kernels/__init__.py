"""Triton kernels, each in one file with its checked launcher and the same thing in plain torch.

Without Triton the files still import and the twins work. `python -m kernels.compile` builds every kernel for every
GPU family, on a machine without a GPU.
"""
