"""Imports torch and Triton in a process of its own and reports what they see, so that the doctor never loads them.

Run as a module it prints one JSON object: the fields of `Accelerator`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

TIMEOUT_SECONDS = 180
"""Importing torch from a cold disk takes tens of seconds; a driver that hangs takes for ever."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What torch and Triton say. Versions are "" where the import failed, and `*_error` then says why."""

    torch: str = ""
    torch_error: str = ""
    cuda: str = ""
    """The CUDA version that torch was built with, "" for a CPU build."""
    cuda_works: bool = False
    cuda_error: str = ""
    device: str = ""
    capability: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    triton: str = ""
    triton_error: str = ""


@cache
def probe() -> Accelerator:
    """Ask once per run. Never raises: a probe that dies or hangs is reported in `torch_error`."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "app.doctor.probe"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return Accelerator(**json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return Accelerator(torch_error=f"it did not answer within {TIMEOUT_SECONDS} s")
    except (IndexError, ValueError, TypeError):
        return Accelerator(torch_error=f"loading it ended the process with code {done.returncode}")


def _look() -> dict[str, object]:
    seen: dict[str, object] = {}
    try:
        import torch
    except Exception as error:  # a broken library fails in any way; the person gets its words
        return {"torch_error": _first_line(error)}
    seen["torch"] = torch.__version__
    seen["cuda"] = torch.version.cuda or ""
    try:
        if torch.cuda.is_available():
            # One real piece of work: a driver too old for this build is only noticed then.
            torch.ones(8, device="cuda").sum().item()
            properties = torch.cuda.get_device_properties(0)
            free, total = torch.cuda.mem_get_info()
            seen |= {"cuda_works": True, "device": properties.name, "free_bytes": free, "total_bytes": total}
            seen["capability"] = f"{properties.major}.{properties.minor}"
    except Exception as error:
        seen["cuda_error"] = _first_line(error)
    try:
        import triton

        seen["triton"] = triton.__version__
    except Exception as error:
        seen["triton_error"] = _first_line(error)
    return seen


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    print(json.dumps(_look()))
