"""The rotation that every quantised format is stored in: signs, then a Hadamard matrix.

It spreads a row's few large values over all of them (QuaRot, arXiv 2404.00456). The product of two rotated rows is
that of the rows, so attention rotates q, k and v once as they come, and the mixed values back once: nothing is
rotated inside the loop over pages.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


@cache
def rotation(head_dim: int) -> Tensor:
    """An orthogonal matrix `[head_dim, head_dim]`, float32, to multiply rows with from the right.

    The Hadamard matrix has the size of the largest power of two that divides `head_dim`: all of a head of 64, 128 or
    256, and groups of 32 in one of 96, of 16 in one of 80. The signs are fixed; they keep a row whose values are all
    alike from falling onto a single one.
    """
    size = head_dim & -head_dim
    hadamard = torch.ones(1, 1)
    while len(hadamard) < size:
        hadamard = torch.cat((torch.cat((hadamard, hadamard), 1), torch.cat((hadamard, -hadamard), 1)))
    blocks = torch.kron(torch.eye(head_dim // size), hadamard / size**0.5)
    signs = torch.randint(2, (head_dim, 1), generator=torch.Generator().manual_seed(head_dim)) * 2 - 1
    return blocks * signs
