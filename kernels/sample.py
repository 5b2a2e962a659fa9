"""The next token of each row of logits, drawn where they lie: penalties, min-p, top-k, top-p and the draw, no sort.

A program has a row. It finds where top-k and top-p end by bisection over the float32 values in their own order, a pass
over the row each: for top-k 40 and top-p 0.95 after it 16 and 5 passes, the mean over 64 positions of a text on the
starter model, and never more than 33 each. Tokens that are equal to the last one that top-p keeps are kept in order.

The draw takes the highest of score + Gumbel noise. The noise is counted, not generated in sequence: 52 bits of
SplitMix64 of a key (of seed and position) and the token's id, so that a row is drawn alike alone and beside others, and
on another device. Scores and noise are float32 here and float64 in the twin, so the two differ where two tokens come
within about 1e-6 of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from kernels.arguments import Layout, expect, expect_dims
from kernels.noise import FIRST, SECOND, STEP, gumbel
from kernels.runtime import CompileCase, jit, next_power_of_two, require, tl

NOTHING, NO_NUMBER = -1, -2
"""Instead of a token: every one is masked out; or the logits hold NaN."""
_BLOCK, _WARPS = 4096, 16


@dataclass(frozen=True, slots=True)
class Draws:
    """How each row is drawn, `[rows]`: `temperature` (0 is greedy), `top_p` (1 is off) and `log_min_p` (the logarithm
    of min-p, -inf is off) float32; `top_k` (0 is off) and `key` (of seed and position, see `kernels.noise`) int64."""

    temperature: Tensor
    top_p: Tensor
    log_min_p: Tensor
    top_k: Tensor
    key: Tensor


@dataclass(frozen=True, slots=True)
class Edits:
    """What is done to single logits before: of each row the tokens `ids` int64 `[rows, edits]`, each once, -1 for none;
    `bias` float32, which is added, and `times` float32, how often a token is penalised for (0 not at all, -1: it is
    masked out), both `[rows, edits]`; `repetition`, `presence` and `frequency` penalties float32 `[rows]`."""

    ids: Tensor
    bias: Tensor
    times: Tensor
    repetition: Tensor
    presence: Tensor
    frequency: Tensor


@jit
def _edit(
    logits: tl.tensor, ids: tl.tensor, bias: tl.tensor, times: tl.tensor, repetition: tl.tensor, presence: tl.tensor,
    frequency: tl.tensor, vocab: tl.tensor, edits: tl.tensor, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """All edits of one row."""
    row, entry = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    token = tl.load(ids + row * edits + entry, mask=entry < edits, other=-1)
    held = (token >= 0) & (token < vocab)
    at = logits + row * vocab + token
    count = tl.load(times + row * edits + entry, mask=held, other=0.0)
    old = tl.load(at, mask=held, other=0.0) + tl.load(bias + row * edits + entry, mask=held, other=0.0)
    factor = tl.load(repetition + row) + tl.zeros_like(old)
    new = tl.where(old > 0.0, tl.div_rn(old, factor), old * factor)
    new = new - tl.load(presence + row) - tl.load(frequency + row) * count
    new = tl.where(count > 0.0, new, old)
    tl.store(at, tl.where(count < 0.0, float("-inf"), new), mask=held)


@jit
def _ordered(x: tl.tensor) -> tl.tensor:
    """int64 numbers in the order of the float32 `x`, equal where they are equal."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)


@jit
def _above(
    logits: tl.tensor, vocab: tl.tensor, edge: tl.tensor, high: tl.tensor, temperature: tl.tensor, least: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """How many values lie above `edge` in `_ordered`, with a score of at least `least`; and the sum of exp(score)."""
    count, mass = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.float32)
    for first in range(0, vocab, BLOCK):
        token = first + tl.arange(0, BLOCK)
        values = tl.load(logits + token, mask=token < vocab, other=float("-inf"))
        score = (values - high) / temperature
        above = (_ordered(values) > edge) & (score >= least) & (token < vocab)
        count += above.to(tl.int32)
        mass += tl.where(above, tl.exp(score), 0.0)
    return tl.sum(count), tl.sum(mass)


@jit
def _mixed(x: tl.tensor, FIRST: tl.constexpr, SECOND: tl.constexpr) -> tl.tensor:
    """SplitMix64's output function of uint64 `x`."""
    x = (x ^ (x >> 30)) * tl.full([1], FIRST, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full([1], SECOND, tl.uint64)
    return x ^ (x >> 31)


@jit
def _gumbel(
    token: tl.tensor, key: tl.tensor, STEP: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr
) -> tl.tensor:
    """Standard Gumbel numbers: -log(-log(u)) of the u in (0, 1) that 52 bits and a half say."""
    counter = (token + 1).to(tl.uint64) * tl.full([1], STEP, tl.uint64) + key.to(tl.uint64, bitcast=True)
    bits = (_mixed(counter, FIRST, SECOND) >> 12).to(tl.int64)
    u = (bits.to(tl.float32) + 0.5) * 2.220446049250313e-16
    # Near 1 float32 holds 1 - u, and not u; log(1 - w) is exact there but for what 1 - w is rounded by.
    w = ((4503599627370495 - bits).to(tl.float32) + 0.5) * 2.220446049250313e-16
    rest = 1.0 - w
    near_one = tl.where(rest == 1.0, -w, tl.log(rest) * (w / (1.0 - tl.where(rest == 1.0, 0.0, rest))))
    return -tl.log(-tl.where(u < 0.5, tl.log(u), near_one))


@jit
def _kth_edge(logits: tl.tensor, vocab: tl.tensor, high: tl.tensor, k: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """The highest edge in `_ordered` that k values or more lie above."""
    low, end = tl.full([], -2147483649, tl.int64), _ordered(high) - 1
    while low < end:
        middle = low + (end - low + 1) // 2
        count, _ = _above(logits, vocab, middle, high, 1.0, float("-inf"), BLOCK)
        low = tl.where(count >= k, middle, low)
        end = tl.where(count > k, end, tl.where(count == k, middle, middle - 1))
    return low


@jit
def _nucleus(
    logits: tl.tensor, vocab: tl.tensor, edge: tl.tensor, high: tl.tensor, temperature: tl.tensor, least: tl.tensor,
    top_p: tl.tensor, BLOCK: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Of the values above `edge`, the edge that the first of them lie above whose mass reaches `top_p`; and how many
    of those that stand on that edge belong to them."""
    below, total = _above(logits, vocab, edge, high, temperature, least, BLOCK)
    wanted = total * top_p
    low, end = edge + 1, _ordered(high)
    above, mass = below * 0, total * 0.0
    while (low < end) & (below - above > 1):
        middle = low + (end - low) // 2
        count, found = _above(logits, vocab, middle, high, temperature, least, BLOCK)
        enough = found >= wanted
        low, below = tl.where(enough, middle + 1, low), tl.where(enough, count, below)
        end, above, mass = tl.where(enough, end, middle), tl.where(enough, above, count), tl.where(enough, mass, found)
    whole = low < end  # one value alone lies between the two
    return tl.where(whole, low - 1, low), tl.where(whole, 0.0, wanted - mass)


@jit
def _drawn(
    logits: tl.tensor, vocab: tl.tensor, edge: tl.tensor, room: tl.tensor, high: tl.tensor, temperature: tl.tensor,
    least: tl.tensor, key: tl.tensor, STEP: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The highest of score + noise among the values above `edge`, and those on it whose mass before is below `room`."""
    best, ids = tl.full([BLOCK], float("-inf"), tl.float32), tl.full([BLOCK], 0, tl.int32)
    on_edge = 0
    for first in range(0, vocab, BLOCK):
        token = first + tl.arange(0, BLOCK)
        values = tl.load(logits + token, mask=token < vocab, other=float("-inf"))
        order, score = _ordered(values), (values - high) / temperature
        inside = (order >= edge) & (score >= least) & (token < vocab)
        if tl.max(inside.to(tl.int32), 0) > 0:
            equal = (inside & (order == edge)).to(tl.int32)
            before = (on_edge + tl.cumsum(equal, 0) - equal).to(tl.float32) * tl.exp(score)
            on_edge += tl.sum(equal, 0)
            kept = inside & ((order > edge) | (before < room))
            total = tl.where(kept, score + _gumbel(token.to(tl.int64), key, STEP, FIRST, SECOND), float("-inf"))
            ids = tl.where(total > best, token, ids)
            best = tl.maximum(best, total)
    return tl.min(tl.where(best == tl.max(best, 0), ids, vocab), 0)


@jit
def _sample(
    logits: tl.tensor, temperature: tl.tensor, top_p: tl.tensor, log_min_p: tl.tensor, top_k: tl.tensor, key: tl.tensor,
    out: tl.tensor, vocab: tl.tensor, STEP: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """The token of one row."""
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * vocab
    best, ids = tl.full([BLOCK], float("-inf"), tl.float32), tl.full([BLOCK], 0, tl.int32)
    broken = tl.full([BLOCK], 0, tl.int32)
    for first in range(0, vocab, BLOCK):
        token = first + tl.arange(0, BLOCK)
        values = tl.load(base + token, mask=token < vocab, other=float("-inf"))
        broken |= (values != values).to(tl.int32)
        ids = tl.where(values > best, token, ids)
        best = tl.where(values > best, values, best)
    high, no_number = tl.max(best, 0), tl.max(broken, 0) > 0
    chosen = tl.min(tl.where(best == high, ids, vocab), 0)
    heat = tl.load(temperature + row)
    if (heat > 0.0) & (high > float("-inf")) & (high < float("inf")) & (no_number == 0):
        least, k, p = tl.load(log_min_p + row), tl.load(top_k + row), tl.load(top_p + row)
        edge, room = tl.full([], -2147483649, tl.int64), heat * 0.0
        if (k > 0) & (k < vocab):
            edge = _kth_edge(base, vocab, high, k, BLOCK)
        if p < 1.0:
            edge, room = _nucleus(base, vocab, edge, high, heat, least, p, BLOCK)
        chosen = _drawn(base, vocab, edge, room, high, heat, least, tl.load(key + row), STEP, FIRST, SECOND, BLOCK)
    chosen = tl.where(high > float("-inf"), chosen, -1)
    tl.store(out + row, tl.where(no_number, -2, chosen).to(tl.int64))


def sample(logits: Tensor, draws: Draws, edits: Edits | None = None) -> Tensor:
    """The next token of each row of `logits` (float32 `[rows, vocab]`, contiguous), by the Triton kernels: int64
    `[rows]`; NOTHING where every token is masked out (-inf), NO_NUMBER where a logit is NaN. `edits` are written into
    `logits`. Nothing waits for the device.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    rows, vocab = _check(logits, draws, edits)
    require("sample", "sample_torch", logits.device)
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        if edits is not None:
            count = edits.ids.shape[1]
            _edit[(rows,)](
                logits, edits.ids, edits.bias, edits.times, edits.repetition, edits.presence, edits.frequency, vocab,
                count, BLOCK=max(256, next_power_of_two(count)),
            )  # fmt: skip
        _sample[(rows,)](
            logits, draws.temperature, draws.top_p, draws.log_min_p, draws.top_k, draws.key, out, vocab, STEP=STEP,
            FIRST=FIRST, SECOND=SECOND, BLOCK=_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
    return out


def sample_torch(logits: Tensor, draws: Draws, edits: Edits | None = None) -> Tensor:
    """What `sample` does, in plain torch and float64, on any device."""
    rows, _ = _check(logits, draws, edits)
    if edits is not None:
        _edit_torch(logits, edits)
    return torch.stack([_drawn_torch(logits[row], draws, row) for row in range(rows)])


def _edit_torch(logits: Tensor, edits: Edits) -> None:
    for row in range(logits.shape[0]):
        held = edits.ids[row] >= 0
        ids, times = edits.ids[row][held], edits.times[row][held]
        old = logits[row, ids] + edits.bias[row][held]
        new = torch.where(old > 0, old / edits.repetition[row], old * edits.repetition[row])
        new = new - edits.presence[row] - edits.frequency[row] * times
        logits[row, ids] = torch.where(times < 0, -torch.inf, torch.where(times > 0, new, old))


def _drawn_torch(logits: Tensor, draws: Draws, row: int) -> Tensor:
    """The token `[]` of one row."""
    temperature, k = draws.temperature[row].double(), int(draws.top_k[row])
    if bool(logits.isnan().any()) or bool((logits == -torch.inf).all()):
        return torch.full((), NO_NUMBER if bool(logits.isnan().any()) else NOTHING, device=logits.device)
    if temperature == 0 or bool(logits.isinf().any() & (logits.max() == torch.inf)):
        return logits.argmax()
    values, ids = logits.sort(descending=True, stable=True)
    scores = (values.double() - values[0]) / temperature
    if 0 < k < len(logits):
        scores = scores.masked_fill(values < values[k - 1], -torch.inf)
    scores = scores.masked_fill(scores < draws.log_min_p[row], -torch.inf)
    if draws.top_p[row] < 1:
        mass = scores.exp()
        before = mass.cumsum(-1) - mass
        scores = scores.masked_fill(before >= draws.top_p[row] * mass.sum(), -torch.inf)
    return ids[(scores + gumbel(ids, draws.key[row])).argmax()]


def _check(logits: Tensor, draws: Draws, edits: Edits | None) -> tuple[int, int]:
    """Raise ValueError with one sentence about the first argument that does not fit; rows and vocabulary."""
    expect_dims("logits", logits, "[rows, vocab]")
    beside = ("logits", logits)
    expect("logits", logits, tuple(logits.shape), torch.float32, beside, Layout.DENSE)
    rows = logits.shape[0]
    for name in (field.name for field in fields(draws)):
        dtype = torch.int64 if name in ("top_k", "key") else torch.float32
        expect(name, getattr(draws, name), (rows,), dtype, beside, Layout.DENSE)
    if edits is not None:
        expect_dims("ids", edits.ids, "[rows, edits]")
        for name in (field.name for field in fields(edits)):
            shape = (rows, edits.ids.shape[1]) if name in ("ids", "bias", "times") else (rows,)
            dtype = torch.int64 if name == "ids" else torch.float32
            expect(name, getattr(edits, name), shape, dtype, beside, Layout.DENSE)
    return rows, logits.shape[1]


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: both kernels; vocabularies that are multiples of 16, and others."""
    floats, whole = "*fp32:16", "*i64:16"
    for vocab in ("i32:16", "i32"):
        odd = " odd" * (vocab == "i32")
        yield CompileCase(
            f"sample{odd}", _sample,
            {"logits": floats, "temperature": floats, "top_p": floats, "log_min_p": floats, "top_k": whole}
            | {"key": whole, "out": whole, "vocab": vocab},
            {"STEP": STEP, "FIRST": FIRST, "SECOND": SECOND, "BLOCK": _BLOCK}, _WARPS, 3,
        )  # fmt: skip
    yield CompileCase(
        "edit_logits", _edit,
        {"logits": floats, "ids": whole}
        | dict.fromkeys(("bias", "times", "repetition", "presence", "frequency"), floats)
        | {"vocab": "i32:16", "edits": "i32"},
        {"BLOCK": 256}, 4, 3,
    )  # fmt: skip
