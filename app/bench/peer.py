"""Other programs that this machine has, each in a process of its own, measured with our plan's texts."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.bench.ours import NEW, Exchange, Plan
from app.bench.report import LeftOut, Program, Speeds, Turn
from app.errors import PersonError

LLAMA_VARIABLE = "AIOS_LLAMA_PYTHON"
"""Names a Python that has llama-cpp-python, where ours has not."""
_SCRIPT = Path(__file__).parent / "peers" / "run.py"
_LONGEST_LINE = 1 << 20
_ITEM_BYTES = {"float32": 4, "bfloat16": 2}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class PeerError(PersonError):
    """A peer that cannot go on; its own words."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What a peer runs: the same file, window and threads as ours, in the same type on the same device."""

    model: str
    threads: int
    window: int
    device: str
    dtype: str
    system: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A program and the Python that has it."""

    name: str
    python: str


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A model of so many parameters whose weights are held in `dtype` alone, and what its device has free for it."""

    parameters: int
    dtype: str
    free_bytes: int

    @property
    def bytes(self) -> int:
        """Of the weights."""
        return self.parameters * _ITEM_BYTES[self.dtype]


def find_peers(model: Path, unpacked: Unpacked) -> tuple[list[Peer], list[LeftOut]]:
    """Those that can run the model here, and why not the others."""
    peers, left_out = list[Peer](), list[LeftOut]()
    if unpacked.bytes > unpacked.free_bytes:
        why = f"its weights in {unpacked.dtype} take {_gib(unpacked.bytes)}, and {_gib(unpacked.free_bytes)} are free"
        left_out.append(LeftOut("transformers", f"{why}: take a smaller model to compare with it"))
    else:
        peers.append(Peer("transformers", sys.executable))
    llama = os.environ.get(LLAMA_VARIABLE) or (sys.executable if importlib.util.find_spec("llama_cpp") else None)
    if model.is_dir():
        left_out.append(LeftOut("llama.cpp", "it reads GGUF files, and this model is a folder"))
    elif llama is None:
        why = f"llama-cpp-python is not installed; {LLAMA_VARIABLE} may name a Python that has it"
        left_out.append(LeftOut("llama.cpp", why))
    else:
        peers.append(Peer("llama.cpp", llama))
    return peers, left_out


class RunningPeer:
    """A peer that has loaded the model. Everything raises PeerError in its own words."""

    def __init__(self, peer: Peer, process: asyncio.subprocess.Process, log: Path) -> None:
        self._peer, self._process, self._log = peer, process, log

    async def hello(self) -> dict[str, str]:
        """Name and version, once the model is loaded."""
        hello: dict[str, str] = await self._hear()
        return hello

    async def speeds(self, plan: Plan, on_round: Callable[[int], None]) -> Speeds:
        """As ours."""
        long, short = list[tuple[float, float, float]](), list[tuple[float, float, float]]()
        for number, prompt in enumerate(plan.long, 1):
            on_round(number)
            long.append(await self._timed(prompt, plan.turns[0].answer))
            short.append(await self._timed(plan.short, plan.turns[0].answer))
        return Speeds(
            prompt_tokens=int(long[0][0]),
            read_per_second=statistics.median(tokens / seconds for tokens, seconds, _ in long),
            answer_per_second=1 / statistics.median(each for _, _, each in long),
            short_prompt_tokens=int(short[0][0]),
            short_answer_per_second=1 / statistics.median(each for _, _, each in short),
        )

    async def chat(self, exchanges: list[tuple[Exchange, int]], on_turn: Callable[[Turn], None]) -> None:
        """The growing chat; each exchange comes with the tokens that the chat then has."""
        for number, (exchange, tokens) in enumerate(exchanges, 1):
            read, first, each = await self._ask({**asdict(exchange), "new": NEW})
            on_turn(Turn(number, tokens, int(read), first, each))

    async def _timed(self, prompt: str, answer: str) -> tuple[float, float, float]:
        tokens, read, each = await self._ask({"prompt": prompt, "answer": answer, "new": NEW})
        return tokens, read, each

    async def _ask(self, request: dict[str, Any]) -> list[float]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None
        answer: list[float] = await self._hear()
        return answer

    async def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise self._died()
        said = json.loads(line)
        if isinstance(said, dict) and "error" in said:
            raise PeerError(f"{said['error']} (its log is at {self._log})")
        return said

    def _died(self) -> PeerError:
        return PeerError(f"its process ended (its log is at {self._log})")


@asynccontextmanager
async def running(peer: Peer, options: PeerOptions, log: Path) -> AsyncIterator[tuple[RunningPeer, Program]]:
    """The peer with the model loaded, and its figures so far. Raises PeerError; its process ends whatever happens."""
    began = time.perf_counter()
    with log.open("wb") as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                *(peer.python, str(_SCRIPT), peer.name, json.dumps(asdict(options))),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LONGEST_LINE,
                start_new_session=True,
                env={**os.environ, **_OFFLINE},
            )
        except OSError as error:
            raise PeerError(f"{peer.python} cannot be run ({(error.strerror or str(error)).lower()})") from error
    try:
        running = RunningPeer(peer, process, log)
        hello = await running.hello()
        yield running, Program(hello["name"], hello["version"], time.perf_counter() - began)
    finally:
        _kill(process)
        await asyncio.shield(process.wait())


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
