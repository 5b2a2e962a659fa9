"""Is there a Triton to compile the GPU kernels with?"""

from __future__ import annotations

from app.doctor.check import Check, Status
from app.doctor.probe import Accelerator


def check(seen: Accelerator) -> Check:
    """Judge what the probe saw of Triton: it only matters with a GPU."""
    name = "Triton"
    if seen.triton:
        return Check(name, Status.OK, f"triton {seen.triton}" + ("" if seen.cuda_works else ", unused without a GPU"))
    if not seen.torch:
        return Check(name, Status.WARNING, "not looked at, because torch cannot be loaded", "See PyTorch above.")
    if not seen.cuda_works:
        return Check(name, Status.OK, "not installed, and not needed without a GPU")
    fix = "Install it: `python -m pip install triton`."
    return Check(name, Status.WARNING, f"not usable ({seen.triton_error}): the GPU runs the slower plain path", fix)
