"""Is there room on the GPU for the model and its KV pool?"""

from __future__ import annotations

from app.doctor.check import Check, Status
from app.doctor.probe import Accelerator

WANTED_BYTES = 1 << 30
"""The starter model in bf16 is 0.27 GB; with its KV pool, CUDA's own context and work space 1 GiB is enough."""


def check(seen: Accelerator) -> Check:
    """Judge the free memory that the probe saw."""
    name = "GPU memory"
    if not seen.cuda_works:
        return Check(name, Status.OK, "no GPU: the model and its window live in main memory")
    detail = f"{seen.free_bytes / 2**30:.1f} of {seen.total_bytes / 2**30:.1f} GiB free on {seen.device}"
    if seen.free_bytes < WANTED_BYTES:
        return Check(name, Status.WARNING, detail, "Close other programs that use the GPU (`nvidia-smi` lists them).")
    return Check(name, Status.OK, detail)
