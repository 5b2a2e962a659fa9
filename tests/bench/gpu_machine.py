"""What `tests.bench.gpu` runs on: how work is timed there, and the shapes of the models that are measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.cache.formats.kv_format import KvFormat
from engine.model.config import LayerConfig, ModelConfig, QkNorm, RopeConfig, RopeKind, Scoring
from engine.runner_graph import CudaGraphs, Step
from tests.bench.report import median

_FLUSHED = 2**28
"""Bytes written between two timed calls: more than the 50 MB of an H200's second-level cache."""


class Graphs(Protocol):
    """Captures steps, and says what memory they took."""

    bytes: int

    def __call__(self, step: Step) -> Step: ...


class Capturing:
    """Captures, and keeps what kept it from that: the runner would go on without."""

    def __init__(self, graphs: Graphs) -> None:
        self.graphs = graphs
        self.failed: RuntimeError | None = None

    def __call__(self, step: Step) -> Step:
        try:
            return self.graphs(step)
        except RuntimeError as error:
            self.failed = error
            raise


class Machine(Protocol):
    """A device, and the clock on it."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def names(self) -> dict[str, str]:
        """What the figures belong to: device and versions."""

    def seconds(self, work: Callable[[], object]) -> float:
        """The median time of `work` on the device, cold caches, compiled and warm."""

    def wait(self) -> None:
        """Until the device has done all that it was given."""

    def graphs(self) -> Graphs:
        """Captures the steps of one runner."""

    def begin_peak(self) -> None:
        """Free what nobody holds, and count the peak of memory from here."""

    def peak(self) -> int:
        """The most bytes held on the device since `begin_peak`."""

    def free(self) -> int:
        """Bytes that can be taken."""


class Gpu:
    """An NVIDIA GPU, timed by CUDA events."""

    dtype = torch.bfloat16

    def __init__(self, repeats: int = 20) -> None:
        self.device, self._repeats = torch.device("cuda"), repeats
        self._flushed = torch.empty(_FLUSHED, dtype=torch.uint8, device=self.device)

    @property
    def names(self) -> dict[str, str]:
        import triton

        about = torch.cuda.get_device_properties(self.device)
        return {
            "gpu": about.name,
            "processors": str(about.multi_processor_count),
            "memory_gib": f"{about.total_memory / 2**30:.1f}",
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "triton": triton.__version__,
        }

    def seconds(self, work: Callable[[], object]) -> float:
        for _ in range(3):
            work()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(self._repeats)]
        for begin, end in events:
            # While the device writes these, the host gets ahead of it: a launch is not part of what is timed.
            self._flushed.zero_()
            begin.record()
            work()
            end.record()
        self.wait()
        return median([begin.elapsed_time(end) / 1000 for begin, end in events])

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def graphs(self) -> Graphs:
        return CudaGraphs(self.device)

    def begin_peak(self) -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        self._held = torch.cuda.memory_allocated(self.device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self.device) - self._held

    def free(self) -> int:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model, without its weights."""

    name: str
    hidden: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    rope: RopeConfig
    qk_norm: QkNorm = QkNorm.NONE

    @property
    def config(self) -> ModelConfig:
        """As its file would give it."""
        return ModelConfig(
            name=self.name,
            family="llama" if self.qk_norm is QkNorm.NONE else "qwen3",
            vocab=self.vocab,
            hidden=self.hidden,
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            intermediate=self.intermediate,
            norm_eps=1e-5,
            context=131072,
            tied_embeddings=self.tied,
            layer_kinds=(LayerConfig(self.rope),) * self.layers,
            scoring=Scoring(self.head_dim**-0.5),
            qk_norm=self.qk_norm,
        )


_LLAMA = RopeConfig(theta=500000.0, kind=RopeKind.LLAMA3, factor=8.0)
SHAPES = (
    Shape("Llama-3.2-1B", 2048, 16, 32, 8, 64, 8192, 128256, True, _LLAMA),
    Shape("Qwen3-4B", 2560, 36, 32, 8, 128, 9728, 151936, True, RopeConfig(theta=1e6), QkNorm.HEAD),
    Shape("Llama-3.1-8B", 4096, 32, 32, 8, 128, 14336, 128256, False, _LLAMA),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. `windows`: after how many windows the speed is compared with that after one; `answer`:
    tokens of each of the starter model's answers."""

    shapes: tuple[Shape, ...] = SHAPES
    copy_bytes: int = 2**31
    contexts: tuple[int, ...] = (4096, 32768)
    batches: tuple[int, ...] = (1, 8)
    chunk: int = 512
    page: int = 32
    quota: int = 4096
    new: int = 64
    small_quota: int = 1024
    windows: int = 100
    rounds: int = 5
    answer: int = 128
    formats: tuple[KvFormat, ...] = tuple(KvFormat)
