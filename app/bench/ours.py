"""Our side of the benchmark: the person's model and settings in the engine's own process, timed as a person waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.bench.prose import text
from app.bench.report import Speeds, Turn
from app.chat_prompt import PATH_MESSAGES
from app.host import wire
from app.host.host import Host
from app.host.sampling import Sampling
from app.ids import ChatId, MessageId

ROUNDS = 3
"""A speed is the median of so many."""
NEW = 24
"""Tokens of an answer that are timed."""
LEAST_NEW = 8
"""An answer that ended sooner tells nothing of a token's time."""
LONG, SHORT_SENTENCES = 1024, 1
_SAMPLE_SENTENCES = 12
_QUESTION = "Go on with this, at length and in full sentences: "


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of the growing chat: what is asked, and the answer that stands in the chat afterwards."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What every program reads: prompts for the speeds, one a round, a short one, and the turns of the growing chat.
    Each turn is a quarter of the window, the answer most of it."""

    long: tuple[str, ...]
    short: str
    turns: tuple[Exchange, ...]


def plan(tokens_per_sentence: float, window_tokens: int, turns: int) -> Plan:
    """Texts that take about 1,024 tokens (half the window where that is less) and a quarter of the window."""
    long = max(1, int(min(LONG, window_tokens // 2) / tokens_per_sentence))
    quarter = max(1, int((window_tokens // 4 - 2 * tokens_per_sentence) / tokens_per_sentence))
    return Plan(
        long=tuple(_QUESTION + text(1000 + number, long) for number in range(ROUNDS)),
        short=_QUESTION + text(2000, SHORT_SENTENCES),
        turns=tuple(Exchange(_QUESTION + text(3000 + n, 1), text(4000 + n, quarter)) for n in range(turns)),
    )


@dataclass(frozen=True, slots=True)
class _Heard:
    """One answer: seconds from the request to the first text, and what the engine says of it."""

    first_seconds: float
    finished: wire.Finished
    window: wire.WindowView | None

    @property
    def token_seconds(self) -> float | None:
        """Of each token after the first."""
        new = self.finished.new_tokens
        return self.finished.decode_seconds / (new - 1) if new >= LEAST_NEW else None


class Ours:
    """Asks a loaded engine. Everything raises HostError when the engine fails."""

    def __init__(self, host: Host, system: str) -> None:
        self._host, self._system = host, system
        self._chats = 0

    async def tokens_per_sentence(self) -> float:
        """Of this model's tokenizer. The first question warms the engine up and pays for the system prompt, which the
        other two find known; no two of them share a beginning, so that both read all of their own."""
        await self._ask_anew("!")
        bare, long = await self._ask_anew("."), await self._ask_anew(text(1, _SAMPLE_SENTENCES))
        return max(1.0, (long.finished.prompt_tokens - bare.finished.prompt_tokens) / _SAMPLE_SENTENCES)

    async def speeds(self, plan: Plan, on_round: Callable[[int], None]) -> Speeds:
        """Reading and answering in new chats."""
        long, short = list[_Heard](), list[_Heard]()
        for number, prompt in enumerate(plan.long, 1):
            on_round(number)
            long.append(await self._ask_anew(prompt))
            short.append(await self._ask_anew(plan.short))
        return Speeds(
            prompt_tokens=long[0].finished.prompt_tokens,
            read_per_second=statistics.median(h.finished.prompt_tokens / h.finished.prefill_seconds for h in long),
            answer_per_second=per_second([heard.token_seconds for heard in long]),
            short_prompt_tokens=short[0].finished.prompt_tokens,
            short_answer_per_second=per_second([heard.token_seconds for heard in short]),
        )

    async def chat(self, plan: Plan, on_turn: Callable[[Turn], None]) -> None:
        """The growing chat: each question is timed, and then the chat has the plan's answer instead of the model's,
        read before the next question comes, so that every program reads the same chat."""
        chat, path = self._new_chat(), list[wire.PromptMessage]()
        for number, exchange in enumerate(plan.turns, 1):
            path.append(_said(f"q{number}", wire.Role.USER, exchange.question))
            heard = await self._ask(chat, path)
            path.append(_said(f"a{number}", wire.Role.ASSISTANT, exchange.answer))
            window = await self._read(chat, path) or heard.window
            position = window.position if window is not None else 0
            read = heard.finished.prompt_tokens
            on_turn(Turn(number, position, read, heard.first_seconds, heard.token_seconds))
        await self._host.close_session(chat)

    async def _ask_anew(self, prompt: str) -> _Heard:
        chat = self._new_chat()
        heard = await self._ask(chat, [_said("q", wire.Role.USER, prompt)])
        await self._host.close_session(chat)
        return heard

    async def _ask(self, chat: ChatId, path: list[wire.PromptMessage]) -> _Heard:
        sampling = Sampling(temperature=0, seed=1, max_tokens=NEW + 1, end_loops=False)
        answer = MessageId(f"timed {path[-1].id}")
        request = wire.GenerateRequest(chat, self._system, tuple(path[-PATH_MESSAGES:]), answer, sampling, ())
        window, first, began = None, None, time.perf_counter()
        async with self._host.generate(request) as stream:
            async for event in stream:
                if isinstance(event, wire.Delta) and first is None:
                    first = time.perf_counter()
                elif isinstance(event, wire.WindowView):
                    window = event
                elif isinstance(event, wire.Finished):
                    return _Heard((first or time.perf_counter()) - began, event, window)
        raise RuntimeError("the engine ended an answer without its figures")

    async def _read(self, chat: ChatId, path: list[wire.PromptMessage]) -> wire.WindowView | None:
        """Read the path in the background; None for a policy that reads nothing ahead."""
        window = None
        request = wire.ReadRequest(chat, self._system, tuple(path[-PATH_MESSAGES:]), ())
        async with self._host.read(request) as stream:
            async for event in stream:
                if isinstance(event, wire.WindowView):
                    window = event
        return window

    def _new_chat(self) -> ChatId:
        self._chats += 1
        return ChatId(f"bench {self._chats}")


def per_second(token_seconds: list[float | None]) -> float | None:
    """The median of the rounds in which there was something to time."""
    timed = [seconds for seconds in token_seconds if seconds]
    return 1 / statistics.median(timed) if timed else None


def _said(key: str, role: wire.Role, said: str) -> wire.PromptMessage:
    return wire.PromptMessage(MessageId(key), role, said)
