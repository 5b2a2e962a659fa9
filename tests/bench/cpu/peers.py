"""What our speed is compared with: llama.cpp and transformers, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.cpu.setting import ROOT, THREADS, WINDOW

LLAMA_PYTHON = "AIOS_LLAMA_PYTHON"
TYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Answer:
    """How long a peer took to read a prompt, how many tokens of it, and how long for the new tokens."""

    read: float
    tokens: int
    more: float


class Peer:
    """One peer's process: started at once, used when it is ready."""

    def __init__(self, name: str, python: str, *arguments: str) -> None:
        self.name = name
        # OpenMP is left as it comes: a peer whose threads are told not to spin is slower than people know it.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
        command = [python, "-m", f"tests.bench.cpu.with_{name}", *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._command = " ".join(command)
        self._process = subprocess.Popen(command, text=True, cwd=ROOT, env=environment, **pipes)
        self._read()

    @property
    def keeps_cache(self) -> bool:
        """Whether a prompt is read only from where it differs from the one before."""
        return self.name == "llamacpp"

    def answer(self, tokens: list[int], new: int = 0, *, fresh: bool = False) -> Answer:
        """Have it read a prompt, using what it has of it in its cache unless `fresh`, and `new` tokens more."""
        read, count, more = self.call("answer", tokens=tokens, new=new, fresh=fresh)
        return Answer(read, int(count), more)

    def call(self, do: str, **arguments: object) -> Any:
        """Any method of the peer's side."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} does not run; see why with: {self._command}")
        return json.loads(line)


def llamacpp(file: Path, context: int = WINDOW) -> list[Peer]:
    """llama.cpp, by the Python that AIOS_LLAMA_PYTHON names; none without it."""
    python = os.environ.get(LLAMA_PYTHON)
    return [] if python is None else [Peer("llamacpp", python, str(file), str(THREADS), str(context))]


def transformers(file: Path, tokens: list[int], new: int) -> Peer:
    """transformers, in the type in which it is faster at reading `tokens` and writing `new` more."""
    both = [Peer("transformers", sys.executable, str(file), str(THREADS), dtype) for dtype in TYPES]
    taken = []
    for peer in both:
        peer.answer(tokens, new)
        again = peer.answer(tokens, new)
        taken.append(again.read + again.more)
    best = taken.index(min(taken))
    both[1 - best].close()
    print(f"transformers runs in {TYPES[best]}: " + ", ".join(f"{t:.2f} s" for t in taken), flush=True)
    return both[best]
