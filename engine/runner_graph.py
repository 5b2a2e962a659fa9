"""Decoding by CUDA graphs: a step in which every chat computes one token is launched as a whole, not kernel by kernel.

What such a step reads lies at fixed places and is written anew before each replay; what it launches depends on shapes
alone. There is one graph for each number of chats (1, 2, 4, ..., padded with unused rows), captured when it is first
needed. All other steps (a prompt's chunk, a guess, scored pages) run eagerly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from engine.attention import AttentionByWindow
from engine.attention_gpu import PageTables
from engine.attention_packed import Rotated, pack_full
from engine.attention_packed_gpu import PackedPageTables
from engine.cache.packed import PackedPages
from engine.cache.pages import Pages
from engine.config import EngineConfig
from engine.decode_inputs import DecodeInputs, DecodeTables, Field, Staged, Staging
from engine.model.decoder import Attend, Decoder, Phases
from engine.model.load import LoadedModel
from engine.model.rope import Rope, Rotation
from engine.policy import Policy
from engine.runner import Computed, EagerRunner, moved_on
from engine.scheduler import Prefill, Schedule
from engine.session import Session
from engine.types import Position
from engine.window import sight, sink_phase
from kernels.runtime import next_power_of_two

_log = logging.getLogger(__name__)
_CPU = torch.device("cpu")
_WARM_UPS = 2

Step = Callable[[], Tensor]
"""Computes what its inputs say, and returns logits `[rows, vocab]` that the next call may write over."""


class Runner(Protocol):
    """Computes the steps of an engine."""

    def run(self, schedule: Schedule) -> list[Computed]:
        """Compute the scheduled tokens. Sessions move on only when the pass has succeeded."""


class StaticDecode:
    """The next token of up to `rows` sessions, from inputs that stay at one place: tokens, rotations, page tables."""

    def __init__(self, decoder: Decoder, pages: Pages, rows: int, table_len: int) -> None:
        config, device = decoder.config, pages.k.device
        self._decoder = decoder
        # Angles are computed on the host, as they are for an eager step, and come with everything else in one copy.
        self._ropes = [Rope(rope, config.head_dim, _CPU) for rope in config.ropes]
        self._windows = config.windows
        dims = [config.head_dim if rope.dims is None else rope.dims for rope in config.ropes]
        angles = [Field((rows, 1, rotated), torch.float32) for rotated in dims for _ in range(4)]
        places, tables = _tables_for(pages, rows, table_len, len(self._windows))
        self.staging = Staging([*places, Field((rows,), torch.int64), *angles], device)
        fields = iter(self.staging.fields)
        self._tables, self._tokens = tables(fields), next(fields)
        self._angles = [(next(fields), next(fields), next(fields), next(fields)) for _ in dims]
        self._phases = Phases(
            tuple(Rotation(cos.device, sin.device) for cos, sin, _, _ in self._angles),
            tuple(Rotation(cos.device, sin.device) for _, _, cos, sin in self._angles),
        )
        by_number = [self._tables.attend(number, config.scoring) for number in range(len(self._windows))]
        attentions = dict(zip(self._windows, by_number, strict=True))
        attend = AttentionByWindow(attentions, [kind.window for kind in config.layer_kinds])
        self._attend: Attend = Rotated(attend, pages.rotation) if isinstance(pages, PackedPages) else attend
        self.write([], [])

    def write(self, sessions: list[Session], starts: list[Position]) -> None:
        """The inputs for the next token of each session, whose windows begin at `starts`; the other rows are unused:
        token 0 at no position, which sees nothing and is stored nowhere."""
        at = [(session.shape, session.position, start) for session, start in zip(sessions, starts, strict=True)]
        seen = [tuple(sight(*where, native) for native in self._windows) for where in at]
        phases = [t for _, t, _ in at] + [sink_phase(*where) for where in at]
        count = len(sessions)
        with self.staging.writing():
            self._tables.write(sessions, seen)
            self._tokens.host.fill(0)
            self._tokens.host[:count] = [session.pending[0] for session in sessions]
            for rope, angles in zip(self._ropes, self._angles, strict=True):
                turned = rope.rotation(phases)
                cos, sin = turned.cos.numpy(), turned.sin.numpy()
                for staged, values in zip(angles, (cos[:count], sin[:count], cos[count:], sin[count:]), strict=True):
                    staged.host.fill(0)
                    staged.host[:count] = values

    def step(self) -> Tensor:
        """Logits `[rows, vocab]`. No host synchronisation, and nothing whose shape depends on what was written."""
        return self._decoder.logits(self._decoder.forward(self._tokens.device, self._phases, self._attend))


class CudaGraphs:
    """Captures steps as CUDA graphs that share one memory pool: only one of them runs at a time, and what it returns
    is read before the next."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self.bytes = 0
        """Device memory that the graphs took, their pool included."""

    def __call__(self, step: Step) -> Step:
        """Run `step` to warm it up (kernels are compiled, libraries take their workspaces), capture it, and return its
        replay. Raises RuntimeError when it cannot be captured."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        free, graph = torch.cuda.mem_get_info(self._device)[0], torch.cuda.CUDAGraph()
        # Another thread may allocate meanwhile; only this one's calls are captured, and only they can spoil it.
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                logits = step()
        except RuntimeError:
            torch.cuda.set_stream(current)  # torch leaves its own where a capture ends in an error
            raise
        taken = max(0, free - torch.cuda.mem_get_info(self._device)[0])
        self.bytes += taken
        _log.info("a decode step of %d chats is a CUDA graph now, %.1f MB", logits.shape[0], taken / 1e6)

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


class GraphRunner:
    """Decode steps of up to `sessions` chats with at most `table_len` pages each, captured by `capture`; all other
    steps by `eager`."""

    def __init__(
        self,
        eager: EagerRunner,
        decoder: Decoder,
        pages: Pages,
        *,
        sessions: int,
        table_len: int,
        capture: Callable[[Step], Step],
    ) -> None:
        self._eager, self._decoder, self._pages = eager, decoder, pages
        self._sessions, self._table_len = sessions, table_len
        self._capture: Callable[[Step], Step] | None = capture
        self._steps: dict[int, tuple[StaticDecode, Step]] = {}

    @torch.inference_mode()
    def run(self, schedule: Schedule) -> list[Computed]:
        """As `EagerRunner.run`."""
        sessions = schedule.decode
        if schedule.prefill is not None or any(session.policy is Policy.SCORED for session in sessions):
            return self._eager.run(schedule)
        starts = [session.starts(session.position, Position(session.position + 1)) for session in sessions]
        rows = min(next_power_of_two(len(sessions)), self._sessions)
        if rows not in self._steps:
            # Every row is unused until something is written, so warming up and capturing leave the pages alone.
            static = StaticDecode(self._decoder, self._pages, rows, self._table_len)
            self._steps[rows] = static, self._captured(static.step)
        static, replay = self._steps[rows]
        static.write(sessions, [first for (first,) in starts])
        logits = replay()[: len(sessions), None].clone()
        if isinstance(self._pages, PackedPages):
            pack_full(self._pages, sessions)
        work = zip(sessions, logits, starts, strict=True)
        return [moved_on(Prefill(session, 1), row, begin) for session, row, begin in work]

    def _captured(self, step: Step) -> Step:
        """The replay of a step, or the step itself where it cannot be captured."""
        if self._capture is None:
            return step
        try:
            return self._capture(step)
        except RuntimeError as error:
            self._capture = None
            _log.warning("decoding goes on without CUDA graphs, which is slower: %s", str(error).partition("\n")[0])
            return step


def runner_for(model: LoadedModel, pages: Pages, config: EngineConfig) -> Runner:
    """The fastest runner for a model and its pages: CUDA graphs on a GPU where a step is free of host synchronisation,
    which a mixture of experts is not: it asks which experts run."""
    eager = EagerRunner(model.decoder, pages, model.device)
    if model.device.type != "cuda" or model.config.experts is not None:
        return eager
    return GraphRunner(
        eager,
        model.decoder,
        pages,
        sessions=config.sessions,
        table_len=config.quota_pages,
        capture=CudaGraphs(model.device),
    )


def _tables_for(
    pages: Pages, rows: int, table_len: int, windows: int
) -> tuple[list[Field], Callable[[Iterator[Staged]], DecodeTables]]:
    """What the tables of such pages take of a staging, and how they are made of it."""
    if isinstance(pages, PackedPages):
        packed = PackedPageTables.fields(pages, rows, table_len, windows)
        return packed, lambda staged: PackedPageTables(pages, staged, windows)
    return DecodeInputs.fields(rows, table_len, windows), lambda staged: PageTables(pages, staged, windows)
