"""Whether the CPU's kernels are compiled. The first start on a machine compiles for half a minute, later ones load the
result from disk in a second; both happen beside the loading of a model, and until then the torch twins do the work.
"""

from __future__ import annotations

import logging
import threading

import torch

from kernels.cpu.compiled import MARK
from kernels.cpu.decode_layers import DecodeLayers, LayerParts, Window
from kernels.cpu.packed_linear import packed_linear, packed_rows
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight, empty
from kernels.cpu.team import Team

_log = logging.getLogger(__name__)
_compiled, _begun = threading.Event(), threading.Event()


def on_disk() -> bool:
    """True when an earlier start compiled the kernels, so that they will be there before a model is."""
    return MARK.exists()


def compiled() -> bool:
    """True once every kernel can run."""
    return _compiled.is_set()


def wait_compiled(timeout: float) -> bool:
    """Begin if nobody has, and wait; False when it takes longer than so many seconds, or failed."""
    compile_in_background()
    return _compiled.wait(timeout)


def compile_in_background() -> None:
    """Begin to compile, once; returns at once. The process cannot end meanwhile, but by `os._exit`: taken down under
    the compiler it would abort."""
    if not _begun.is_set():
        _begun.set()
        threading.Thread(target=_compile, name="kernels-compile").start()


def _compile() -> None:
    try:
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
        pages = torch.zeros(2, 1, 1, 1, GROUP)
        layers = DecodeLayers([layer], pages[0], pages[1], eps=1.0, scale=1.0, team=team)
        layers(torch.zeros(1, GROUP), torch.zeros(1, 4, GROUP), [Window(0, [(0, 1)], [])])
    except Exception as error:
        # A machine that LLVM does not know well, a cache folder that cannot be written: slower, not broken.
        _log.warning("the CPU kernels cannot be compiled here (%s); plain torch is used instead", error)
        return
    _compiled.set()
    try:
        MARK.touch()
    except OSError as error:
        _log.warning("the CPU kernels are compiled anew at every start: %s cannot be written (%s)", MARK, error)


def _nothing(rows: int, columns: int) -> PackedWeight:
    weight = empty(rows, columns, 4)
    weight.data.zero_()
    return weight
