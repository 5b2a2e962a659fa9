"""What a model and its chats will take, known before anything is loaded, beside the memory that is free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.cache.formats.kv_format import page_type
from engine.cache.packed import pages_for
from engine.config import EngineConfig
from engine.model.load import OpenedModel
from engine.types import EngineError

_GIB = 2**30
_CGROUP = Path("/sys/fs/cgroup")


class NoRoomError(EngineError):
    """The model and its chats take more memory than is free."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes: of the weights as they will be held, of all KV pages, of page images beside a model on the CPU (a GPU's
    are in other memory), and what is free on the model's device."""

    weights_bytes: int
    kv_bytes: int
    host_bytes: int
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        """All that is planned."""
        return self.weights_bytes + self.kv_bytes + self.host_bytes

    @property
    def fits(self) -> bool:
        """Whether what is planned can be had."""
        return self.total_bytes <= self.free_bytes

    def check(self) -> None:
        """Raises NoRoomError with the numbers when it cannot fit."""
        if not self.fits:
            raise NoRoomError(
                f"the model needs {_gib(self.weights_bytes)} for its weights and "
                f"{_gib(self.kv_bytes + self.host_bytes)} for its chats' windows, {_gib(self.total_bytes)} together, "
                f"and {_gib(self.free_bytes)} are free: take a smaller model, --weights int8 or int4, a smaller "
                "--window, a --kv-format such as int8 or fewer sessions"
            )


def plan(model: OpenedModel, config: EngineConfig) -> Plan:
    """What `model` and the chats of `config` will take. Raises what `OpenedModel.weights_bytes` does."""
    keeper = model.keeper
    # The engine's own pages, on a device that has only sizes: what is planned cannot differ from what is taken.
    pages = pages_for(
        config.kv_format,
        model.config,
        sessions=config.sessions,
        quota_pages=config.quota_pages,
        page_size=config.page_size,
        dtype=page_type(config.kv_format, keeper.dtype, keeper.device),
        device=torch.device("meta"),
    )
    return Plan(
        weights_bytes=model.weights_bytes(),
        kv_bytes=pages.bytes,
        host_bytes=config.host_bytes if keeper.device.type == "cpu" else 0,
        free_bytes=free_memory(keeper.device),
    )


def planned(model: OpenedModel, config: EngineConfig) -> tuple[OpenedModel, Plan]:
    """`model` and its plan, or with its weights held as the file does where they fit only so: slow until the kernels
    are compiled, but there. Raises what `OpenedModel.weights_bytes` does."""
    first = plan(model, config)
    if first.fits or model.smaller is None:
        return model, first
    smaller = replace(model, keeper=model.smaller)
    return smaller, plan(smaller, config)


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device: on a CPU what the kernel calls available, or what the control group
    of this process (a container's limit) leaves when that is less."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = (_number(_CGROUP / f"memory.{name}") for name in ("max", "current"))
    return available if limit is None or used is None else max(0, min(available, limit - used))


def _number(file: Path) -> int | None:
    """The number in a control file; None where there is none, or "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _gib(count: int) -> str:
    return f"{count / _GIB:.2f} GiB"
