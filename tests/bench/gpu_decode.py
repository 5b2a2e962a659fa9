"""Decoding by random models of real shapes: eagerly and by CUDA graphs, against what their bytes allow."""

from __future__ import annotations

import itertools
import time

import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat
from engine.cache.kv_cache import KvCache
from engine.cache.packed import pages_for
from engine.model.config import Activation, QkNorm
from engine.model.decoder import Decoder, DecoderWeights, LayerWeights
from engine.model.linear import Linear, Table, WeightForm
from engine.model.mlp import GatedMlp
from engine.model.weights.keep import Keeper
from engine.runner import Computed, EagerRunner
from engine.runner_graph import GraphRunner, Runner
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, SessionId
from engine.window import WindowShape
from tests.bench.gpu_machine import Capturing, Machine, Shape, Sizes
from tests.bench.report import median

_ids = itertools.count(1)


def random_decoder(machine: Machine, shape: Shape, form: WeightForm = WeightForm.FULL) -> Decoder:
    """Weights drawn on the device, and held there in `form`."""
    keeper = Keeper(machine.device, machine.dtype, form)
    width, kv_width = shape.q_heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def drawn(rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns, dtype=machine.dtype, device=machine.device).normal_(0, columns**-0.5)

    def linear(rows: int, columns: int) -> Linear:
        return keeper.linear([drawn(rows, columns)], (rows, columns), None)

    def table(rows: int, columns: int) -> Table:
        return keeper.table([drawn(rows, columns)], (rows, columns))

    def ones(size: int) -> Tensor:
        return torch.ones(size, device=machine.device)

    norms = shape.qk_norm is QkNorm.HEAD
    layers = [
        LayerWeights(
            ones(shape.hidden),
            linear(width + 2 * kv_width, shape.hidden),
            linear(shape.hidden, width),
            ones(shape.hidden),
            GatedMlp(
                Activation.SILU,
                linear(2 * shape.intermediate, shape.hidden),
                linear(shape.hidden, shape.intermediate),
            ),
            ones(shape.head_dim) if norms else None,
            ones(shape.head_dim) if norms else None,
        )
        for _ in range(shape.layers)
    ]
    embedding = table(shape.vocab, shape.hidden)
    head = embedding if shape.tied else table(shape.vocab, shape.hidden)
    return Decoder(shape.config, DecoderWeights(embedding, tuple(layers), ones(shape.hidden), head))


class Chats:
    """Chats of one model that decode side by side, greedily, as the engine has them do it."""

    def __init__(
        self, machine: Machine, decoder: Decoder, sizes: Sizes, *, chats: int, quota: int, kv_format: KvFormat
    ) -> None:
        self._machine, self._decoder, self._chunk, config = machine, decoder, sizes.chunk, decoder.config
        self._quota_pages = quota // sizes.page
        self.pages = pages_for(
            kv_format, config, sessions=chats, quota_pages=self._quota_pages, page_size=sizes.page,
            dtype=machine.dtype, device=machine.device,
        )  # fmt: skip
        self._cache = KvCache(config.name, self.pages, sessions=chats, quota_pages=self._quota_pages, host_images=0)
        shape = WindowShape(sizes.page, 2 * sizes.page, self._quota_pages - 2)
        self._sessions = [Session(SessionId(next(_ids)), shape) for _ in range(chats)]
        self._next: dict[SessionId, int] = {}
        for session in self._sessions:
            self._cache.admit(session)
            session.append(None, self._words(shape.sinks))

    def eager(self) -> EagerRunner:
        """Kernel by kernel."""
        return EagerRunner(self._decoder, self.pages, self._machine.device)

    def graphs(self) -> tuple[GraphRunner, int]:
        """By CUDA graphs, one of which is captured already; and the bytes it took. Raises RuntimeError when it cannot
        be."""
        sizes = {"sessions": len(self._sessions), "table_len": self._quota_pages}
        capture = Capturing(self._machine.graphs())
        runner = GraphRunner(self.eager(), self._decoder, self.pages, **sizes, capture=capture)
        self.decode(4, runner)
        if capture.failed is not None:
            raise capture.failed
        return runner, capture.graphs.bytes

    @property
    def seen(self) -> int:
        """Tokens that all of them see together."""
        return sum(session.visible_tokens for session in self._sessions)

    def read(self, tokens: int, runner: Runner) -> float:
        """Each chat reads so many random tokens; seconds."""
        for session in self._sessions:
            session.append(MessageKey(f"m{session.end}"), self._words(tokens))
        self._machine.wait()
        began = time.perf_counter()
        while any(session.pending for session in self._sessions):
            self._step(runner)
        self._machine.wait()
        return time.perf_counter() - began

    def decode(self, tokens: int, runner: Runner) -> float:
        """Each chat writes so many; seconds a step, the highest score taken on the host included."""
        self._machine.wait()
        began = time.perf_counter()
        for _ in range(tokens):
            for session in self._sessions:
                session.append(MessageKey("answer"), [self._next[session.id]])
            self._step(runner)
        return (time.perf_counter() - began) / tokens

    def _step(self, runner: Runner) -> None:
        planned = schedule(self._sessions, self._chunk)
        for session in planned.decode:
            self._cache.claim(session, 1)
        if planned.prefill is not None:
            self._cache.claim(planned.prefill.session, planned.prefill.count)
        computed: list[Computed] = runner.run(planned)
        best = torch.stack([c.logits.argmax() for c in computed]).tolist()
        for c, token in zip(computed, best, strict=True):
            self._cache.settle(c.session)
            self._next[c.session.id] = token

    def _words(self, count: int) -> list[int]:
        return torch.randint(self._decoder.config.vocab, (count,)).tolist()


def fits(machine: Machine, shape: Shape, sizes: Sizes) -> bool:
    """Whether the model and its largest windows fit, with room for what is computed."""
    kv = shape.config.kv_bytes_per_token(KvFormat.AUTO, machine.dtype.itemsize) * sizes.quota * max(sizes.batches)
    layer = shape.hidden * (3 * shape.intermediate + 2 * (shape.q_heads + shape.kv_heads) * shape.head_dim)
    weights = shape.layers * layer + (1 if shape.tied else 2) * shape.vocab * shape.hidden
    return 1.2 * (weights * machine.dtype.itemsize + kv) < machine.free()


@torch.inference_mode()
def decoding(machine: Machine, shape: Shape, sizes: Sizes, floor: float) -> dict[str, float]:
    """Tokens a second with a full window, and the share of what the bandwidth allows: weights and windows read once a
    step. Memory: the peak beside what `engine.plan` counts, which is weights and pages."""
    figures: dict[str, float] = {}
    machine.begin_peak()
    decoder, name = random_decoder(machine, shape), shape.name
    weights = decoder.weights.bytes
    read = weights if shape.tied else weights - decoder.weights.embedding.bytes
    kv = shape.config.kv_bytes_per_token(KvFormat.AUTO, machine.dtype.itemsize)
    pages = 0
    for batch in sizes.batches:
        chats = Chats(machine, decoder, sizes, chats=batch, quota=sizes.quota, kv_format=KvFormat.AUTO)
        pages = max(pages, chats.pages.bytes)
        eager = chats.eager()
        seconds = chats.read(sizes.quota, eager)
        chats.decode(4, eager)
        graphs, taken = chats.graphs()
        rounds = [(chats.decode(sizes.new, eager), chats.decode(sizes.new, graphs)) for _ in range(sizes.rounds)]
        by_eager, by_graph = (median(column) for column in zip(*rounds, strict=True))
        least = (read + kv * chats.seen) / floor
        figures |= {
            f"{name}_batch{batch}_prefill_tok_s": batch * sizes.quota / seconds,
            f"{name}_batch{batch}_eager_tok_s": batch / by_eager,
            f"{name}_batch{batch}_graph_tok_s": batch / by_graph,
            f"{name}_batch{batch}_graph_vs_eager": median([e / g for e, g in rounds]),
            f"{name}_batch{batch}_graph_of_bandwidth": least / by_graph,
            f"{name}_batch{batch}_graph_mb": taken / 1e6,
        }
        del chats, eager, graphs
    figures[f"{name}_peak_over_plan"] = machine.peak() / (weights + pages)
    for line in figures.items():
        print("{} {:.2f}".format(*line), flush=True)
    return figures


@torch.inference_mode()
def flat(machine: Machine, sizes: Sizes) -> dict[str, float]:
    """Time a token behind many windows, over that behind one: two chats of the smallest model, in turn."""
    decoder = random_decoder(machine, sizes.shapes[0])
    both = []
    for windows in (1, sizes.windows):
        chats = Chats(machine, decoder, sizes, chats=1, quota=sizes.small_quota, kv_format=KvFormat.AUTO)
        chats.read(windows * sizes.small_quota, chats.eager())
        both.append((chats, chats.graphs()[0]))
    rounds = [[chats.decode(2 * sizes.new, runner) for chats, runner in both] for _ in range(2 * sizes.rounds)]
    return {"slope_100_windows": median([late / early for early, late in rounds])}


@torch.inference_mode()
def low_bit(machine: Machine, sizes: Sizes, floor: float) -> dict[str, float]:
    """Tokens a second by graphs with weights in 8 and 4 bits, on the largest shape, and the share of the bandwidth."""
    shape, figures = sizes.shapes[-1], {}
    kv = shape.config.kv_bytes_per_token(KvFormat.AUTO, machine.dtype.itemsize)
    for form in (WeightForm.INT8, WeightForm.INT4):
        weights = (decoder := random_decoder(machine, shape, form)).weights
        chats = Chats(machine, decoder, sizes, chats=1, quota=sizes.quota, kv_format=KvFormat.AUTO)
        chats.read(sizes.quota, chats.eager())
        runner, _ = chats.graphs()
        seconds = median([chats.decode(sizes.new, runner) for _ in range(sizes.rounds)])
        read = weights.bytes - (0 if shape.tied else weights.embedding.bytes)
        figures[f"weights_{form}_tok_s"] = 1 / seconds
        figures[f"weights_{form}_of_bandwidth"] = (read + kv * chats.seen) / floor / seconds
        del decoder, weights, chats, runner
    return figures


@torch.inference_mode()
def formats(machine: Machine, sizes: Sizes) -> dict[str, float]:
    """Tokens a second by graphs in each page format, on the largest shape that is measured."""
    decoder, figures = random_decoder(machine, sizes.shapes[-1]), {}
    for kv_format in sizes.formats:
        chats = Chats(machine, decoder, sizes, chats=1, quota=sizes.quota, kv_format=kv_format)
        chats.read(sizes.quota, chats.eager())
        runner, _ = chats.graphs()
        rounds = [chats.decode(max(1, sizes.new // 4), runner) for _ in range(sizes.rounds)]
        figures[f"kv_{kv_format}_tok_s"] = 1 / median(rounds)
        del chats, runner
    return figures
