"""The next tokens of all answers of a step, drawn on the device at once: one launch, one copy back, one wait.

The same steps as in `engine.sampling.sampler`, by `kernels.sample`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.decode_inputs import Field, Staged, Staging
from engine.sampling.sampler import Sampler
from engine.types import Position
from kernels.noise import noise_key
from kernels.sample import Draws, Edits, sample

_COLDEST = 1e-30
"""Below this temperature nothing but the highest score has a chance, and float32 soon holds no smaller number."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One token to be drawn by `sampler` from `logits` `[vocab]`, for `position`, after `history`; never one of
    `taken_back`."""

    sampler: Sampler
    logits: Tensor
    history: Sequence[int]
    position: Position
    taken_back: frozenset[int]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn, None where no token was left; and what could not be."""

    token: int | None
    taken_back: frozenset[int]


def draw_together(asks: Sequence[Ask]) -> list[Drawn]:
    """Draw for each of `asks`, whose logits lie on one device with the kernel. Raises EngineError for logits that are
    no numbers."""
    if not asks:
        return []
    logits = torch.stack([ask.sampler.masked(ask.logits.float()) for ask in asks])
    tokens = _to_host(sample(logits, *row_settings(asks, logits.device)))
    return [
        Drawn(ask.sampler.judged(token, ask.taken_back), ask.taken_back)
        for ask, token in zip(asks, tokens, strict=True)
    ]


@dataclass(slots=True)
class _Edit:
    """What is done to one logit; as in `kernels.sample.Edits`."""

    bias: float = 0.0
    times: int = 0


def _edits_of(ask: Ask) -> dict[int, _Edit]:
    """By token."""
    params = ask.sampler.params
    edits = {token: _Edit(bias=bias) for token, bias in params.logit_bias}
    for token, times in ask.sampler.penalised_times(ask.history).items():
        edits.setdefault(token, _Edit()).times = times
    for token in ask.taken_back:
        edits.setdefault(token, _Edit()).times = -1
    return edits


def row_settings(asks: Sequence[Ask], device: torch.device) -> tuple[Draws, Edits | None]:
    """The settings of `asks`, a row each, in one copy to the device; no edits where none has any."""
    edits = [_edits_of(ask) for ask in asks]
    rows, most = len(asks), max(map(len, edits))
    floats, whole = Field((rows,), torch.float32), Field((rows,), torch.int64)
    of_edits = [Field((rows, most), kind) for kind in (torch.int64, torch.float32, torch.float32)] + [floats] * 3
    staging = Staging([floats, floats, floats, whole, whole, *(of_edits if most else [])], device)
    draws, about_edits = staging.fields[:5], staging.fields[5:]
    with staging.writing():
        for row, ask in enumerate(asks):
            params = ask.sampler.params
            _write(draws, row, _how(ask))
            if most:
                ids, bias, times, *penalties = about_edits
                held = edits[row]
                ids.host[row] = [*held, *[-1] * (most - len(held))]
                bias.host[row, : len(held)] = [edit.bias for edit in held.values()]
                times.host[row, : len(held)] = [edit.times for edit in held.values()]
                of = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
                _write(penalties, row, of)
    sent = Draws(*(staged.device for staged in draws))
    return sent, Edits(*(staged.device for staged in about_edits)) if most else None


def _how(ask: Ask) -> tuple[float, float, float, int, int]:
    """The fields of `Draws`, in their order."""
    params = ask.sampler.params
    temperature = params.temperature if params.temperature >= _COLDEST else 0.0
    log_min_p = math.log(params.min_p) if params.min_p > 0 else -math.inf
    return temperature, params.top_p, log_min_p, params.top_k, noise_key(params.seed, ask.position)


def _write(fields: Sequence[Staged], row: int, values: Sequence[float]) -> None:
    for staged, value in zip(fields, values, strict=True):
        staged.host[row] = value


def _to_host(tokens: Tensor) -> list[int]:
    """The step's only wait for the device."""
    if tokens.device.type != "cuda":
        return [int(token) for token in tokens.tolist()]
    host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
    host.copy_(tokens, non_blocking=True)
    torch.cuda.current_stream(tokens.device).synchronize()
    return [int(token) for token in host.tolist()]
