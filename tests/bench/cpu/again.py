"""What is computed again when a person goes back, forks or changes the chat: tokens, and time to the first new token.

Four cases: the newest answer is generated again; a chat is forked in its middle while all of it fits; a chat longer
than its window is forked at a message whose window has partly left; and a chat is gone on with after others were
answered, of which there are more than keep a window. The peers get the same texts as one prompt, old messages dropped
where it is longer than the window leaves room for. llama.cpp reads what its one cache does not begin with; for the
change of chats also with the caches kept by the caller and copied back (its server's --cache-ram). transformers'
`generate` reads all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.engine import Engine
from engine.text.tokenizer import Tokenizer
from engine.types import MessageKey, SessionId
from tests.bench.cpu import peers
from tests.bench.cpu.ours import Turn, answer, engine_of, feed, model_of, open_chat, turn
from tests.bench.cpu.setting import QUESTION, ROOM, ROUNDS, SYSTEM, WINDOW, Figures, text_of
from tests.bench.report import median

TURNS, SHORT, CHATS, NEW = 24, 7, 3, 1
"""Turns of the long chat and of the one that fits; chats that take turns, one more than keep a window."""
BACK = 4
"""Turns between the end of a chat and where it is forked."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Questions and replies of a chat that begins with turn `first`."""

    tokenizer: Tokenizer
    first: int

    def said(self, number: int) -> tuple[str, str]:
        """The question and the reply of a turn."""
        return text_of(self.first + number, 2), text_of(self.first + number + 200, 2)

    def feed(self, engine: Engine, chat: SessionId, turns: int) -> None:
        """Have the chat say the first turns."""
        for number in range(turns):
            feed(engine, chat, f"{number}", *self.said(number))

    def prompt(self, turns: int, question: str = QUESTION) -> list[int]:
        """The system prompt, the newest of the first turns that fit, and a question, as a peer reads them."""
        system, asked = (self.tokenizer.encode_plain(text) for text in (SYSTEM, question))
        room, kept = WINDOW - ROOM - len(system) - len(asked), []
        for number in reversed(range(turns)):
            both = self.tokenizer.encode_plain("".join(self.said(number)))
            if len(both) > room:
                break
            room, kept = room - len(both), [*both, *kept]
        return [*system, *kept, *asked]


class Times:
    """Of each case and each side, the seconds of its rounds and the tokens of the newest."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.tokens: dict[tuple[str, str], int] = {}

    def add(self, round_: int, case: str, side: str, seconds: float, tokens: int) -> None:
        """One round; round 0 warms up."""
        if round_:
            self.seconds[case, side].append(seconds)
            self.tokens[case, side] = tokens

    def figures(self) -> Figures:
        """Medians, printed as a table as well."""
        figures: Figures = {}
        for (case, side), seconds in self.seconds.items():
            taken, tokens = median(seconds), self.tokens[case, side]
            print(f"{case:16} {side:16} {tokens:5} tokens {1000 * taken:8.1f} ms")
            if side == "ours":
                figures[f"{case}_ttft_ms"], figures[f"{case}_tokens"] = 1000 * taken, tokens
            else:
                figures[f"{case}_vs_{side}"] = taken / median(self.seconds[case, "ours"])
        return figures


def measure(file: Path) -> Figures:
    """regenerate, fork, fork_evicted, switch: tokens computed again, milliseconds, each peer's time as a multiple."""
    tokenizer, times = model_of(file).tokenizer, Times()
    texts = Texts(tokenizer, 0)
    llama, other = peers.llamacpp(file), peers.transformers(file, texts.prompt(TURNS), 0)
    others = [*llama, other]
    _regenerate(file, texts, others, times)
    _fork(file, "fork", texts, SHORT, others, times)
    _fork(file, "fork_evicted", texts, TURNS, others, times)
    _switch(file, [Texts(tokenizer, 400 * chat) for chat in range(CHATS)], others, times)
    for peer in llama:
        _switch_by_copy(peer, texts, Texts(tokenizer, 400), times)
    for peer in others:
        peer.close()
    return times.figures()


def _ours(round_: int, case: str, times: Times, go: Callable[[], Turn]) -> None:
    began = time.perf_counter()
    done = go()
    times.add(round_, case, "ours", time.perf_counter() - began, done.tokens)


def _theirs(round_: int, case: str, others: list[peers.Peer], times: Times, prompt: list[int]) -> None:
    for peer in others:
        done = peer.answer(prompt)
        times.add(round_, case, peer.name, done.read, done.tokens)


def _hold(others: list[peers.Peer], prompt: list[int], new: int) -> None:
    """Have the chat that is gone back in be what a peer's cache holds."""
    for peer in others:
        if peer.keeps_cache:
            peer.answer(prompt, new)


def _regenerate(file: Path, texts: Texts, others: list[peers.Peer], times: Times) -> None:
    engine = engine_of(file)
    chat = open_chat(engine)
    texts.feed(engine, chat, TURNS)
    turn(engine, chat, "last", QUESTION, 64)
    prompt = texts.prompt(TURNS)
    _hold(others, prompt, 64)

    def again() -> Turn:
        engine.rewind(chat, MessageKey("qlast"))
        return answer(engine, chat, "alast", NEW)

    for round_ in range(ROUNDS + 1):
        _ours(round_, "regenerate", times, again)
        _answer_long(engine, chat)
        _theirs(round_, "regenerate", others, times, prompt)


def _answer_long(engine: Engine, chat: SessionId) -> None:
    """Have the newest answer be a long one again, so that there is something to go back over."""
    engine.rewind(chat, MessageKey("qlast"))
    answer(engine, chat, "alast", 64)


def _fork(file: Path, case: str, texts: Texts, turns: int, others: list[peers.Peer], times: Times) -> None:
    engine = engine_of(file)
    chat = open_chat(engine)
    texts.feed(engine, chat, turns)

    def fork(round_: int) -> Turn:
        child = engine.fork(chat, MessageKey(f"a{turns - BACK - 1}"))
        done = turn(engine, child, f"fork{round_}", QUESTION, NEW)
        engine.close_session(child)
        return done

    for round_ in range(ROUNDS + 1):
        _ours(round_, case, times, partial(fork, round_))
        _hold(others, texts.prompt(turns), 0)
        _theirs(round_, case, others, times, texts.prompt(turns - BACK))


def _switch(file: Path, chats: list[Texts], others: list[peers.Peer], times: Times) -> None:
    engine = engine_of(file)
    sessions = [open_chat(engine) for _ in chats]
    for texts, session in zip(chats, sessions, strict=True):
        texts.feed(engine, session, TURNS)
    for round_ in range(ROUNDS + 1):
        for texts, session in zip(chats, sessions, strict=True):
            asked = partial(turn, engine, session, f"switch{round_}", QUESTION, NEW)
            _ours(round_, "switch", times, asked)
            _theirs(round_, "switch", others, times, texts.prompt(TURNS))


def _switch_by_copy(peer: peers.Peer, one: Texts, two: Texts, times: Times) -> None:
    """llama.cpp with the caches of two chats kept beside it: copied out, the other's in, and the question read."""
    for name, texts in (("one", one), ("two", two)):
        peer.answer(texts.prompt(TURNS))
        peer.call("save", name=name)
    for round_ in range(ROUNDS + 1):
        for away, name, texts in (("two", "one", one), ("one", "two", two)):
            copied = peer.call("save", name=away) + peer.call("load", name=name)
            done = peer.answer(texts.prompt(TURNS, question=QUESTION[::-1]))
            times.add(round_, "switch", "llamacpp_copied", copied + done.read, done.tokens)
            peer.answer(texts.prompt(TURNS))
