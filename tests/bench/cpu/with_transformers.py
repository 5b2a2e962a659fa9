"""transformers' side of `tests.bench.cpu`: `python -m tests.bench.cpu.with_transformers FILE THREADS TYPE`.

In a process of its own, because how its threads wait is set for a whole process and ours wait without spinning.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.bench.cpu.peer_loop import serve


class Transformers:
    """The model from the same GGUF file, dequantised, as `from_pretrained` makes it."""

    def __init__(self, file: Path, threads: int, dtype: str) -> None:
        torch.set_num_threads(threads)
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype=getattr(torch, dtype)
        )
        self._model = model.eval()

    @torch.inference_mode()
    def answer(self, tokens: list[int], new: int, fresh: bool) -> list[float]:
        """Read a prompt and `new` tokens after it: seconds to read, tokens read, seconds for the new.

        As `generate`: every call reads its whole prompt, `fresh` or not, and only the last logits are computed.
        """
        began = time.perf_counter()
        out = self._model(torch.tensor([tokens]), use_cache=True, logits_to_keep=1)
        first = time.perf_counter()
        for index in range(new):
            out = self._model(torch.tensor([[100 + index]]), past_key_values=out.past_key_values, use_cache=True)
        return [first - began, len(tokens), time.perf_counter() - first]


if __name__ == "__main__":
    serve(Transformers(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
