"""Does torch load, and does it reach a GPU?"""

from __future__ import annotations

from app.doctor.check import Check, Status
from app.doctor.probe import Accelerator


def check(seen: Accelerator) -> Check:
    """Judge what the probe saw of torch and CUDA."""
    name = "PyTorch"
    if not seen.torch:
        fix = "Reinstall it: `python -m pip install --force-reinstall torch`."
        return Check(name, Status.FAILURE, f"torch cannot be loaded: {seen.torch_error}", fix)
    if seen.cuda_works:
        detail = f"torch {seen.torch}, CUDA {seen.cuda}, {seen.device} (capability {seen.capability})"
        return Check(name, Status.OK, detail)
    if seen.cuda_error:
        fix = "Update the NVIDIA driver, or install a torch build for the driver's CUDA version."
        return Check(name, Status.WARNING, f"torch {seen.torch} cannot use the GPU: {seen.cuda_error}", fix)
    if seen.cuda:
        fix = "Only needed for a GPU: check that `nvidia-smi` lists one."
        return Check(name, Status.WARNING, f"torch {seen.torch}, CUDA {seen.cuda}, but it finds no GPU", fix)
    fix = "Only needed for a GPU: install a torch build with CUDA."
    return Check(name, Status.WARNING, f"torch {seen.torch}, a build for the CPU: answers are slower", fix)
