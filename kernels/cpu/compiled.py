"""How CPU kernels are compiled: without the GIL, kept on disk where that can be, so that only the first start pays."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import llvmlite
import numba
import platformdirs
from llvmlite import binding
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., object])

_FOLDER = Path(__file__).parent
# Numba looks at the time of the file that a kernel stands in, not of those that it calls: a digest of all of them.
_digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(_FOLDER.glob("*.py")))).hexdigest()[:16]
config.CACHE_DIR = str(Path(config.CACHE_DIR or platformdirs.user_cache_dir("aios-chat")) / "kernels" / _digest)

# Numba finds what it kept by the folder of the kernels, Python's version and its own as well, and by the processor.
_asked_for = f"""{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()} {_FOLDER.resolve()}
{sys.version_info[:2]} {numba.__version__} {llvmlite.__version__}"""
MARK = Path(config.CACHE_DIR) / f"compiled-{hashlib.sha256(_asked_for.encode()).hexdigest()[:16]}"
"""A file that is there once all kernels were compiled for this processor and this installation."""


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


KEPT = _writable(MARK.parent)
"""Whether what is compiled can be kept on disk. Asked here, because Numba would go on to other folders, which know no
digest, and refuse to import a kernel when it finds none."""

# Sums may be reordered and products fused, as any vector code does; NaN and infinity keep their meaning, so that a
# damaged weight is seen in the logits.
_FAST = {"reassoc", "contract", "arcp"}


def jit(function: Function) -> Function:
    """`numba.njit` with this house's options."""
    compiled: Function = numba.njit(nogil=True, cache=KEPT, fastmath=_FAST, error_model="numpy")(function)
    return compiled
