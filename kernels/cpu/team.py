"""A few threads that run one compiled function together.

Between two functions the helpers sleep: the screen shares the cores. Inside one, which takes milliseconds and has
barriers a few microseconds apart, waiting threads spin briefly and then yield.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from kernels.cpu.compiled import jit
from kernels.cpu.vectors import add_at, pause, read_at, yield_core

Job = Callable[..., None]
"""job(counters, me, threads, *args), compiled: each thread calls it; it ends with `wait`."""

_SPINS = 2000
"""About 20 microseconds: longer than a part of a layer differs between threads, when all of them have a core."""
PHASES = 1023
"""The most that one job may have: 255 layers of a decoder."""
_APART = 8
"""int64s between two counters: each has a cache line of its own."""


@jit
def wait(counters: int, threads: int) -> None:
    """A barrier: returns when every thread of the team has come here."""
    if threads == 1:
        return
    target = (add_at(counters, 1) // threads + 1) * threads
    spins = 0
    while read_at(counters) < target:
        spins += 1
        if spins < _SPINS:
            pause()
        else:
            yield_core()


@jit
def claim(counters: int, phase: int, size: int) -> int:
    """The first of the next `size` items of a phase, which nobody else gets."""
    first: int = add_at(counters + (phase + 1) * 64, size)
    return first


class Team:
    """`threads` threads, the caller's among them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._running = threading.Lock()
        self._counters = np.zeros((1 + PHASES, _APART), np.int64)
        self._queues: list[SimpleQueue[tuple[Job, tuple[Any, ...]] | None]] = []
        helpers = []
        for me in range(1, threads):
            queue: SimpleQueue[tuple[Job, tuple[Any, ...]] | None] = SimpleQueue()
            self._queues.append(queue)
            helpers.append(
                threading.Thread(target=_serve, args=(queue, me, threads), name=f"kernels-{me}", daemon=True)
            )
            helpers[-1].start()
        weakref.finalize(self, _dismiss, self._queues, helpers)

    def run(self, job: Job, phases: int, *args: Any) -> None:
        """Run `job`, which claims its work in so many phases, to its end; one job at a time, whoever calls."""
        if phases > PHASES:
            raise ValueError(f"a job of {phases} phases; a team counts {PHASES}")
        with self._running:
            self._counters[1 : phases + 1] = 0  # the barrier's own goes on: a helper may still be looking at it
            address = self._counters.ctypes.data
            for queue in self._queues:
                queue.put((job, (address, *args)))
            job(address, 0, self.threads, *args)


@cache
def _team(threads: int) -> Team:
    return Team(threads)


def team() -> Team:
    """The team of as many threads as torch uses."""
    return _team(torch.get_num_threads())


def _serve(queue: SimpleQueue[tuple[Job, tuple[Any, ...]] | None], me: int, threads: int) -> None:
    while (work := queue.get()) is not None:
        job, (address, *args) = work
        job(address, me, threads, *args)


def _dismiss(queues: list[SimpleQueue[tuple[Job, tuple[Any, ...]] | None]], helpers: list[threading.Thread]) -> None:
    for queue in queues:
        queue.put(None)
    # A thread that comes back from a compiled function to an interpreter which is being taken down ends the process
    # with SIGABRT (seen in 6 of 25 exits right after a job), so an exit waits for them.
    for helper in helpers:
        if helper is not threading.current_thread():
            helper.join()
