"""llama.cpp's side of `tests.bench.cpu`, run by a Python that has llama-cpp-python:
`python -m tests.bench.cpu.with_llamacpp FILE THREADS CONTEXT`."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import llama_cpp

from tests.bench.cpu.peer_loop import serve


class LlamaCpp:
    """One context, as `llama_cpp.Llama` makes it by default, at positions [0, n_tokens) of one sequence."""

    def __init__(self, file: str, threads: int, context: int) -> None:
        self._model: Any = llama_cpp.Llama(
            file, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self._saved: dict[str, tuple[Any, list[int]]] = {}

    def answer(self, tokens: list[int], new: int, fresh: bool) -> list[float]:
        """Read a prompt and `new` tokens after it, one at a time: seconds to read, tokens read, seconds for the new.

        As `Llama.generate`: what the prompt begins with and the cache holds is not read again, unless `fresh`.
        """
        model = self._model
        held = [] if fresh else model.input_ids[: model.n_tokens].tolist()
        same = next((i for i, (a, b) in enumerate(zip(held, tokens, strict=False)) if a != b), len(held))
        if fresh:
            model.reset()
        model.n_tokens = min(same, len(tokens) - 1)
        rest = tokens[model.n_tokens :]
        began = time.perf_counter()
        model.eval(rest)
        return [time.perf_counter() - began, len(rest), self._more(new)]

    def next_turn(self, tokens: list[int], keep: int) -> list[float]:
        """Seconds to read the next turn with llama.cpp's context shift, and 1 if it shifted.

        As llama.cpp's own programs with --context-shift: when the context is full, half of what follows the first
        `keep` tokens is dropped, whatever was said there, and the rest is moved down and rotated anew.
        """
        model = self._model
        began = time.perf_counter()
        full = model.n_tokens + len(tokens) > model.n_ctx()
        if full:
            dropped = (model.n_tokens - keep) // 2
            model._ctx.kv_cache_seq_rm(0, keep, keep + dropped)
            model._ctx.kv_cache_seq_shift(0, keep + dropped, model.n_tokens, -dropped)
            stays = model.input_ids[keep + dropped : model.n_tokens].copy()
            model.input_ids[keep : keep + len(stays)] = stays
            model.n_tokens -= dropped
        model.eval(tokens)
        return [time.perf_counter() - began, float(full)]

    def save(self, name: str) -> float:
        """Copy the sequence's cache out, as llama.cpp's server does with --cache-ram; seconds."""
        began = time.perf_counter()
        ctx = self._model._ctx.ctx
        size = llama_cpp.llama_state_seq_get_size(ctx, 0)
        state = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(ctx, state, size, 0)
        self._saved[name] = state, self._model.input_ids[: self._model.n_tokens].tolist()
        return time.perf_counter() - began

    def load(self, name: str) -> float:
        """Copy what was saved back; seconds."""
        began = time.perf_counter()
        state, tokens = self._saved[name]
        self._model.reset()
        self._model._ctx.kv_cache_clear()
        if not llama_cpp.llama_state_seq_set_data(self._model._ctx.ctx, state, len(state), 0):
            raise RuntimeError("the state did not go back")
        self._model.input_ids[: len(tokens)] = tokens
        self._model.n_tokens = len(tokens)
        return time.perf_counter() - began

    def _more(self, new: int) -> float:
        began = time.perf_counter()
        for index in range(new):
            self._model.eval([100 + index])
        return time.perf_counter() - began


if __name__ == "__main__":
    serve(LlamaCpp(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
