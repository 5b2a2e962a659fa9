"""Whether the CPU's kernels are compiled. The first start on a machine compiles them in a process of its own, for half
a minute (a thread would take the interpreter from the loading of the model: 10.9 seconds of processor time instead of
6.4); later starts load the result from disk in a second. Until then the torch twins do the work.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress

import torch

from kernels.cpu.compiled import KEPT, MARK
from kernels.cpu.decode_layers import DecodeLayers, LayerParts, SeenSlots
from kernels.cpu.packed_linear import packed_linear, packed_rows
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight, empty
from kernels.cpu.prefill_attention import DIMS, PrefillAttention, chunk_keys
from kernels.cpu.prefill_layers import PrefillLayers
from kernels.cpu.team import Team

_log = logging.getLogger(__name__)
_compiled, _begun, _ended = threading.Event(), threading.Event(), threading.Event()

NICENESS = 10
"""Of the process that compiles: the answers that are computed without kernels meanwhile come first."""
_SECONDS = 0.1
"""Between two looks at that process."""


def on_disk() -> bool:
    """True when an earlier start compiled the kernels, so that they will be there before a model is."""
    return MARK.exists()


def compiled() -> bool:
    """True once every kernel can run."""
    return _compiled.is_set()


def compiling() -> bool:
    """True while kernels that no earlier start left on disk are compiled; False again when that failed."""
    return _begun.is_set() and not _ended.is_set() and not on_disk()


def wait_compiled(timeout: float) -> bool:
    """Begin if nobody has, and wait; False when it takes longer than so many seconds, or failed."""
    compile_in_background()
    return _compiled.wait(timeout)


def compile_in_background() -> None:
    """Begin to compile, once; returns at once. An exit of the process waits while kernels are loaded: taken down under
    the compiler it would abort."""
    if not _begun.is_set():
        _begun.set()
        threading.Thread(target=_get_ready_once, name="kernels-compile").start()


def _get_ready_once() -> None:
    try:
        _get_ready()
    finally:
        _ended.set()


def _get_ready() -> None:
    if not KEPT:
        _log.warning("the CPU kernels are compiled anew at every start: %s cannot be written", MARK.parent)
    elif not on_disk() and not _compiled_elsewhere():
        return
    failure = _failure()
    if failure is not None and KEPT:
        _log.warning("the CPU kernels that were kept are no good (%s): they are compiled anew", failure)
        shutil.rmtree(MARK.parent, ignore_errors=True)
        if not _compiled_elsewhere():
            return
        failure = _failure()
    if failure is not None:
        # A machine that LLVM does not know well: slower, not broken.
        _log.warning("the CPU kernels cannot be compiled here (%s); plain torch is used instead", failure)
        return
    if KEPT and not on_disk():
        with suppress(OSError):  # the next start compiles again
            MARK.touch()
    _compiled.set()


def _failure() -> Exception | None:
    """Why the kernels cannot run. A file that a power cut or a full disk left short raises EOFError from inside Numba,
    at every start."""
    try:
        _run_each()
    except Exception as error:
        return error
    return None


def _compiled_elsewhere() -> bool:
    """Have another process compile what this one will load. False when this one ends first, and with it the other."""
    # It has to find what this process found, from wherever that was started.
    paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    command = [sys.executable, "-P", "-m", "kernels.cpu.ready"]
    try:
        # Nothing is written to its stdin: that is closed when this process ends, however it does.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **paths}
        )
    except OSError as error:
        _log.warning("no process to compile the CPU kernels can be started (%s); this one does it", error)
        return True
    with process:
        while process.poll() is None:
            threading.main_thread().join(_SECONDS)
            if not threading.main_thread().is_alive():
                process.kill()
                return False
    if process.returncode:
        _log.warning("the process that compiled the CPU kernels ended with %s; this one does it", process.returncode)
    return True


def _run_each() -> None:
    """Call every kernel once, which compiles it or loads it from disk."""
    team = Team(1)
    packed_linear(torch.zeros(1, GROUP), _nothing(TILE, GROUP), team)
    packed_rows(_nothing(TILE, GROUP), torch.tensor([0]))
    layer = LayerParts(
        qkv=_nothing(3 * GROUP, GROUP),
        bias=None,
        out=_nothing(GROUP, GROUP),
        gate_up=_nothing(2 * GROUP, GROUP),
        down=_nothing(GROUP, GROUP),
        attention_norm=torch.ones(GROUP),
        mlp_norm=torch.ones(GROUP),
    )
    pages = torch.zeros(2, 1, 1, 1, GROUP, dtype=torch.float16)
    layers = DecodeLayers([layer], pages[0], pages[1], eps=1.0, scale=1.0, team=team)
    layers(torch.zeros(1, GROUP), torch.zeros(1, 4, GROUP), [SeenSlots(0, [(0, 1)], [])])
    q, k = torch.zeros(1, 1, DIMS), torch.zeros(1, 1, DIMS)
    nowhere, here = torch.empty(0, dtype=torch.long), torch.tensor([[0, 0, 0, 1]])
    keys = chunk_keys(nowhere, torch.tensor([0]), 0, here)
    PrefillAttention(1, 1, DIMS, team)(q, q, (k, k), (k, k), keys, 1.0)
    chunks = PrefillLayers([layer], pages[0], pages[1], eps=1.0, scale=1.0, team=team)
    chunks(torch.zeros(1, GROUP), torch.zeros(1, 4, GROUP), torch.tensor([0]), keys)


def _nothing(rows: int, columns: int) -> PackedWeight:
    weight = empty(rows, columns, 4)
    weight.data.zero_()
    return weight


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _main() -> None:
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    os.nice(NICENESS)
    _run_each()
    MARK.touch()


if __name__ == "__main__":
    _main()
