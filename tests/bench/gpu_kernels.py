"""Each kernel against torch on the same tensors, and against the time that its bytes take in a large copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.weights.quantised import quantised
from kernels.flash import decode_splits
from kernels.gated import Gate, gated
from kernels.paged_attention import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.rope_store import Angles, rope, rope_torch, store, store_torch
from tests.bench.gpu_machine import Machine, Shape, Sizes

CLOSE = 0.02
"""How far kernel and torch may be apart, as a share of the largest value: both round to bfloat16."""


@dataclass(frozen=True, slots=True)
class Case:
    """Two ways to the same tensors, and the bytes that either has to move."""

    name: str
    ours: Callable[[], Tensor]
    torch: Callable[[], Tensor]
    bytes: int


def bandwidth(machine: Machine, size: int) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.ones(size, dtype=torch.uint8, device=machine.device)
    target = torch.empty_like(source)
    return 2 * size / machine.seconds(lambda: target.copy_(source))


@torch.inference_mode()
def kernels(machine: Machine, sizes: Sizes, floor: float) -> dict[str, float]:
    """Microseconds, times as fast as torch, and share of the bandwidth. Raises AssertionError when results differ."""
    figures: dict[str, float] = {}
    for case in cases(machine, sizes):
        got, wanted = case.ours().float(), case.torch().float()
        apart = float((got - wanted).abs().max() / wanted.abs().max())
        ours, theirs = machine.seconds(case.ours), machine.seconds(case.torch)
        figures[f"{case.name}_us"] = 1e6 * ours
        figures[f"{case.name}_vs_torch"] = theirs / ours
        figures[f"{case.name}_of_bandwidth"] = case.bytes / floor / ours
        print(f"{case.name}: {1e6 * ours:.1f} us, torch {1e6 * theirs:.1f} us, apart {apart:.1e}", flush=True)
        assert apart < CLOSE, f"{case.name}: kernel and torch are {apart:.1e} apart"
    return figures


def cases(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """The kernels of a decode step and of a prompt's chunk, on the shape of the largest model."""
    shape = sizes.shapes[-1]
    for context in sizes.contexts:
        for batch in sizes.batches:
            yield decode_case(machine, shape, sizes.page, context, batch)
    yield prefill_case(machine, shape, sizes)
    for bits in (8, 4):
        yield low_bit_case(machine, shape, bits)
    for tokens in (sizes.batches[0], sizes.chunk):
        yield from pointwise_cases(machine, shape, sizes.page, tokens)


def random(machine: Machine, *shape: int) -> Tensor:
    return torch.randn(shape, device=machine.device, dtype=machine.dtype)


def paged(pages: Tensor, table: Tensor) -> Tensor:
    """The tokens of a page table in their order, `[kv_heads, tokens, head_dim]`, in memory of their own."""
    return pages[:, table.long()].flatten(1, 2).contiguous()


def numbers(machine: Machine, *values: int) -> Tensor:
    return torch.tensor(values, device=machine.device)


def decode_case(machine: Machine, shape: Shape, page: int, context: int, batch: int) -> Case:
    """One token of each of `batch` chats of `context` tokens, two pages of them sinks, on scattered pages."""
    count = context // page
    k, v = (random(machine, shape.kv_heads, batch * count, page, shape.head_dim) for _ in range(2))
    table = torch.randperm(batch * count, device=machine.device).int().view(batch, count)
    page_pos = (torch.arange(count, device=machine.device) * page).repeat(batch, 1)
    q = random(machine, batch, shape.q_heads, shape.head_dim)
    sinks, position = numbers(machine, *[2 * page] * batch), numbers(machine, *[context - 1] * batch)
    on_gpu = machine.device.type == "cuda"
    processors = torch.cuda.get_device_properties(machine.device).multi_processor_count if on_gpu else 1
    splits = decode_splits(batch, shape.kv_heads, count, page, processors)
    keys, values = (torch.stack([paged(pages, row) for row in table]) for pages in (k, v))
    return Case(
        f"paged_decode_{context}_batch{batch}",
        lambda: paged_decode(q, q, k, v, table, page_pos, sinks, sinks, position, splits=splits),
        lambda: F.scaled_dot_product_attention(q[:, :, None], keys, values, enable_gqa=True)[:, :, 0],
        keys.nbytes + values.nbytes,
    )


def prefill_case(machine: Machine, shape: Shape, sizes: Sizes) -> Case:
    """A chunk of a prompt behind the shortest of the contexts."""
    context, tokens = sizes.contexts[0], sizes.chunk
    count = context // sizes.page
    k_pages, v_pages = (random(machine, shape.kv_heads, count, sizes.page, shape.head_dim) for _ in range(2))
    table = torch.randperm(count, device=machine.device).int()
    page_pos = torch.arange(count, device=machine.device) * sizes.page
    q = random(machine, tokens, shape.q_heads, shape.head_dim)
    k, v = (random(machine, tokens, shape.kv_heads, shape.head_dim) for _ in range(2))
    sinks, position = numbers(machine, 2 * sizes.page), numbers(machine, context)
    start = sinks.repeat(tokens)
    keys, values = (
        torch.cat((paged(pages, table), new.transpose(0, 1)), dim=1)[None].contiguous()
        for pages, new in ((k_pages, k), (v_pages, v))
    )
    seen = torch.ones(tokens, context + tokens, dtype=torch.bool, device=machine.device).tril(context)
    queries = q.transpose(0, 1)[None]
    return Case(
        f"paged_prefill_{tokens}_after_{context}",
        lambda: paged_prefill(q, q, k, v, k_pages, v_pages, table, page_pos, sinks, start, position),
        lambda: F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen, enable_gqa=True)[0].transpose(
            0, 1
        ),
        keys.nbytes + values.nbytes + 2 * q.nbytes,
    )


def low_bit_case(machine: Machine, shape: Shape, bits: int) -> Case:
    """One token through the gate and up projections, against torch's product with the same values unpacked."""
    rows, columns = 2 * shape.intermediate, shape.hidden
    weight = torch.randn(rows, columns, device=machine.device)
    linear = quantised([weight], (rows, columns), None, bits, machine.dtype, machine.device)
    values = linear.rows(torch.arange(rows, device=machine.device))
    x = random(machine, 1, columns)
    return Case(f"low_bit_linear_int{bits}", lambda: linear(x), lambda: F.linear(x, values), linear.bytes)


def pointwise_cases(machine: Machine, shape: Shape, page: int, tokens: int) -> Iterator[Case]:
    """What stands between the matrix products, for so many tokens."""
    x, hidden = (random(machine, tokens, shape.hidden) for _ in range(2))
    weight = torch.rand(shape.hidden, device=machine.device)
    gate_up = random(machine, tokens, 2 * shape.intermediate)
    yield Case(
        f"rms_norm_{tokens}",
        lambda: rms_norm(x, weight, 1e-5),
        lambda: F.rms_norm(x.float(), (shape.hidden,), weight, 1e-5).to(x.dtype),
        2 * x.nbytes,
    )
    yield Case(
        f"add_rms_norm_{tokens}",
        lambda: add_rms_norm(hidden, x, weight, 1e-5)[1],
        lambda: F.rms_norm((hidden + x).float(), (shape.hidden,), weight, 1e-5).to(x.dtype),
        4 * x.nbytes,
    )
    yield Case(
        f"gated_{tokens}",
        lambda: gated(gate_up, Gate.SILU),
        lambda: F.silu(gate_up[:, : shape.intermediate]) * gate_up[:, shape.intermediate :],
        gate_up.nbytes * 3 // 2,
    )
    q = random(machine, tokens, shape.q_heads, shape.head_dim)
    k, v = (random(machine, tokens, shape.kv_heads, shape.head_dim) for _ in range(2))
    angle = torch.rand(tokens, shape.head_dim, device=machine.device)
    angles = Angles(angle.cos(), angle.sin())
    pages = -(-tokens // page)
    k_pages, v_pages = (random(machine, shape.kv_heads, pages, page, shape.head_dim) for _ in range(2))
    slots = torch.randperm(pages * page, device=machine.device)[:tokens].contiguous()
    yield Case(
        f"rope_{tokens}",
        lambda: rope(q, k, angles, angles)[1],
        lambda: rope_torch(q, k, angles, angles)[1],
        3 * q.nbytes + 2 * k.nbytes,
    )

    def stored(by: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]) -> Tensor:
        by(k, v, slots, k_pages, v_pages)
        return k_pages

    yield Case(f"store_{tokens}", lambda: stored(store), lambda: stored(store_torch), 2 * (k.nbytes + v.nbytes))
