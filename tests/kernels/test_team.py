"""A team of threads: one job at a time, whoever calls."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from kernels.cpu.packed_linear import packed_linear
from kernels.cpu.packed_weights import GROUP, TILE, empty
from kernels.cpu.team import PHASES, Team, wait


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_two_callers_at_once_both_get_their_own(threads: int) -> None:
    torch.manual_seed(0)
    team, weight = Team(threads), empty(64 * TILE, 4 * GROUP, 8)
    weight.data.random_(0, 60)
    inputs = [torch.randn(2, weight.columns) for _ in range(2)]
    wanted = [packed_linear(x, weight, team) for x in inputs]
    wrong: list[Tensor] = []

    def call(index: int) -> None:
        for _ in range(400):
            got = packed_linear(inputs[index], weight, team)
            if not torch.equal(got, wanted[index]):
                wrong.append(got)

    callers = [threading.Thread(target=call, args=(index,)) for index in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_too_many_phases_are_refused() -> None:
    with pytest.raises(ValueError, match=str(PHASES)):
        Team(1).run(wait, PHASES + 1)
