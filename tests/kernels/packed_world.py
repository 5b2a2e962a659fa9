"""A paged cache whose full pages are packed by the engine's own formats, NaN wherever the token may not look."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, page_format
from engine.cache.formats.rows import Rows, dequantise
from engine.cache.formats.turbo import codebook
from kernels.packed_pages import PackedRows, PackedTables
from kernels.page_quantise import Packing
from tests.kernels.conftest import Chat, World

PAIRS = {
    KvFormat.INT8: (Packing.INT8, Packing.INT8),
    KvFormat.K8V4: (Packing.INT8, Packing.INT4),
    KvFormat.INT4: (Packing.INT4, Packing.INT4),
    KvFormat.TQ3: (Packing.TQ3, Packing.TQ3),
}


@dataclass(frozen=True)
class PackedWorld:
    """Arguments of `paged_decode_packed`, and a world of the same window whose history is what the pages hold now."""

    world: World
    k_frames: Tensor
    v_frames: Tensor
    keys: PackedRows
    values: PackedRows
    tables: PackedTables
    magnitudes: Tensor | None

    @property
    def arguments(self):
        return (
            self.world.q_window, self.world.q_sink, self.k_frames, self.v_frames, self.keys, self.values, self.tables,
        )  # fmt: skip

    def to(self, device: str) -> PackedWorld:
        def moved(each):
            if isinstance(each, Tensor | World):
                return each.to(device)
            if isinstance(each, PackedRows | PackedTables):
                held = {f.name: getattr(each, f.name) for f in fields(each)}
                return replace(each, **{n: t.to(device) for n, t in held.items() if isinstance(t, Tensor)})
            return each

        return PackedWorld(**{name: moved(each) for name, each in vars(self).items()})


def pack(
    world: World, chats: list[Chat], name: KvFormat, kept_pages: int = 1, sink_start: Tensor | None = None
) -> PackedWorld:
    """The world with its pages packed: of each session, `kept_pages` sink pages and the page being written are left as
    they are, in frames. A row that held NaN is packed as any codes with a scale of NaN."""
    generator = torch.Generator().manual_seed(1)
    page, head_dim, sessions = world.k_pages.shape[2], world.k_pages.shape[3], len(chats)
    kept = [min(kept_pages, -(-chat.sinks // page)) for chat in chats]
    order = torch.randperm(sum(kept) + sessions + 2, generator=generator).tolist()
    k_frames = torch.full((world.k_pages.shape[0], len(order), page, head_dim), float("nan"), dtype=world.k_pages.dtype)
    v_frames = k_frames.clone()
    frame_table = torch.full((sessions, max(kept) + 2), -1, dtype=torch.int32)
    frame_pos = torch.full((sessions, max(kept) + 2), -1)
    page_pos = world.page_pos.clone()
    chosen = page_format(name, head_dim)
    packed = [_packed(world.k_pages, chosen.keys, generator), _packed(world.v_pages, chosen.values, generator)]
    for session, chat in enumerate(chats):
        for at, entry in enumerate([*range(kept[session]), _own_entry(chat, page)]):
            if entry is None or page_pos[session, entry] < 0:  # not yet written, or among those that are kept
                continue
            frame, held = order.pop(), world.page_table[session, entry]
            k_frames[:, frame], v_frames[:, frame] = world.k_pages[:, held], world.v_pages[:, held]
            frame_table[session, at], frame_pos[session, at] = frame, page_pos[session, entry]
            page_pos[session, entry] = -1
            for rows in packed:
                rows.scales.view(*rows.scales.shape[:1], -1, page)[:, held] = float("nan")
    tables = PackedTables(
        world.page_table, page_pos, frame_table, frame_pos, torch.tensor(kept), world.sink_tokens,
        torch.zeros_like(world.start) if sink_start is None else sink_start, world.start, world.position,
    )  # fmt: skip
    keys, values = (PackedRows(p.codes, p.scales, packing) for p, packing in zip(packed, PAIRS[name], strict=True))
    magnitudes = torch.tensor(codebook(head_dim, 3)[4:]) if name is KvFormat.TQ3 else None
    history = [
        _history(world.keys, chats, kept, page, chosen.keys),
        _history(world.values, chats, kept, page, chosen.values),
    ]
    now = replace(world, keys=history[0], values=history[1])
    return PackedWorld(now, k_frames, v_frames, keys, values, tables, magnitudes)


def _own_entry(chat: Chat, page: int) -> int | None:
    if chat.position < 0:
        return None
    if chat.position < chat.sinks:
        return chat.position // page
    return -(-chat.sinks // page) + (chat.position - chat.sinks) // page % chat.ring_pages


def _packed(pages: Tensor, quantiser, generator: torch.Generator) -> Rows:
    rows = pages.flatten(1, 2)
    found = quantiser.quantise(rows.nan_to_num(0))
    unseen = rows.isnan().any(-1)
    codes = torch.randint(256, found.codes.shape, generator=generator, dtype=torch.uint8)
    return Rows(torch.where(unseen[..., None], codes, found.codes), found.scales.masked_fill(unseen, float("nan")))


def _history(history: tuple[Tensor, ...], chats: list[Chat], kept: list[int], page: int, quantiser):
    """The rows of all positions as the token at the last of them finds them."""
    found = []
    for rows, chat, few in zip(history, chats, kept, strict=True):
        now = rows.float().clone()
        if len(rows):
            dequantise(quantiser, quantiser.quantise(rows), now)
        at = torch.arange(len(rows))
        own = _own_first(chat, page)
        framed = (at < min(few * page, chat.sinks)) | (at >= own)
        found.append(torch.where(framed[:, None, None], rows.float(), now))
    return tuple(found)


def _own_first(chat: Chat, page: int) -> int:
    since = chat.position if chat.position < chat.sinks else chat.position - chat.sinks
    return chat.position - since % page
