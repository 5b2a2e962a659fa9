"""Kernels for the CPU, compiled by Numba on the person's own machine, without a compiler there.

Each file is as those for the GPU are: the kernel, one checked launcher, the same thing in plain torch.
"""
