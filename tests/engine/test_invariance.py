"""Warm equals cold: a history gives the same logits however it came to be in the window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat
from engine.config import EngineConfig
from engine.engine import Engine
from engine.sampling.params import SamplingParams
from engine.types import MessageKey, Position, SessionId
from tests.engine.helpers import poison
from tests.engine.tiny import Tiny

QUOTA, PAGE, TURNS = 96, 8, 9
GREEDY = SamplingParams(max_tokens=20)
# A value that lies between two levels, or two float16, may fall to either side when sums are taken in another order.
CLOSE = {KvFormat.FULL: 1e-4, KvFormat.AUTO: 1e-3, KvFormat.TQ3: 0.5}

Logits = dict[tuple[SessionId, Position], Tensor]


class Watched:
    """An engine whose logits are kept, after each step of which everything that nobody may read is NaN."""

    def __init__(self, tiny: Tiny, kv_format: KvFormat, chunk_tokens: int = 20, guess_tokens: int = 0) -> None:
        config = EngineConfig(
            QUOTA, PAGE, 3, chunk_tokens, host_bytes=1 << 22, guess_tokens=guess_tokens, kv_format=kv_format
        )
        self.engine = Engine(replace(tiny.ours, stop_ids=frozenset()), config)
        self.engine.pages.k.fill_(float("nan"))
        self.engine.pages.v.fill_(float("nan"))
        self.logits: Logits = {}
        runner = self.engine._runner
        run = runner.run

        def watched(schedule):  # type: ignore[no-untyped-def]
            computed = run(schedule)
            for one in computed:
                self.logits[one.session.id, Position(one.session.position - 1)] = one.logits
                for i, ahead in enumerate(one.ahead.logits if one.ahead else ()):
                    self.logits[one.session.id, Position(one.session.position + i)] = ahead
            return computed

        runner.run = watched  # type: ignore[method-assign]

    def open(self, turns: int = TURNS, system: str = "be brief") -> SessionId:
        """A chat of so many turns, of which the last waits for its answer; nothing is computed yet."""
        session = self.engine.open_session(system)
        for number in range(turns):
            if number:
                self.engine.add_answer(session, MessageKey(f"a{number - 1}"), f"so it is {number} " * 3)
            self.ask(session, number)
        return session

    def ask(self, session: SessionId, number: int) -> None:
        """The question of a turn."""
        self.engine.add_user(session, MessageKey(f"q{number}"), f"question {number} " + "x" * (number * 5 % 17))

    def answer(self, *sessions: SessionId) -> Tensor:
        """Answer in the given chats at once; logits of the first's own tokens `[tokens, vocab]`."""
        for session in sessions:
            self.engine.generate(session, MessageKey("answer"), GREEDY)
        chat = self.engine._chats[sessions[0]]
        first = chat.session.end
        while self.engine.busy:
            self.engine.step()
            held = [c.session for c in self.engine._chats.values() if self.engine.cache.admitted(c.session)]
            poison(self.engine.pages, held, self.engine.cache.prefix.resident)
            self.engine.check()
        return torch.stack([self.logits[sessions[0], Position(first - 1 + i)] for i in range(GREEDY.max_tokens)])


@cache
def at_once(tiny_model: object, kv_format: KvFormat) -> Tensor:
    """The logits of one chat, alone in a new engine, read in the largest chunks."""
    assert isinstance(tiny_model, Tiny)
    watched = Watched(tiny_model, kv_format, chunk_tokens=QUOTA)
    session = watched.open()
    logits = watched.answer(session)
    assert watched.engine.window(session).evicted > QUOTA
    return logits


def beside_others(watched: Watched) -> Tensor:
    others = watched.open(5, "another one"), watched.open(3, "and one more")
    return watched.answer(watched.open(), *others)


def after_the_same(watched: Watched) -> Tensor:
    watched.answer(watched.open())
    again = watched.open()
    assert watched.engine.unread(again) <= PAGE
    return watched.answer(again)


def after_a_swap(watched: Watched) -> Tensor:
    session = watched.open(TURNS - 1)
    watched.answer(session)
    watched.engine.rewind(session, MessageKey(f"q{TURNS - 2}"))
    watched.engine.add_answer(session, MessageKey(f"a{TURNS - 2}"), f"so it is {TURNS - 1} " * 3)
    watched.ask(session, TURNS - 1)
    watched.engine.swap_out(session)
    for number in range(3):
        watched.answer(watched.open(7, f"another {number}"))
    assert not watched.engine.admitted(session)
    return watched.answer(session)


def forked(watched: Watched) -> Tensor:
    session = watched.open()
    watched.answer(session)
    for number in range(TURNS, TURNS + 9):
        watched.ask(session, number)
    watched.answer(session)
    child = watched.engine.fork(session, MessageKey(f"q{TURNS - 1}"))
    assert watched.engine.unread(child) <= PAGE
    return watched.answer(child)


def regenerated(watched: Watched) -> Tensor:
    session = watched.open()
    watched.answer(session)
    watched.engine.rewind(session, MessageKey(f"q{TURNS - 1}"))
    return watched.answer(session)


WAYS = (beside_others, after_the_same, after_a_swap, forked, regenerated)


@pytest.mark.parametrize("kv_format", CLOSE)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_however_it_came_there(tiny: Tiny, way: Callable[[Watched], Tensor], kv_format: KvFormat) -> None:
    found = way(Watched(tiny, kv_format))
    torch.testing.assert_close(found, at_once(tiny, kv_format), rtol=0, atol=CLOSE[kv_format])


@pytest.mark.parametrize("kv_format", CLOSE)
@pytest.mark.parametrize("chunk", [1, 3, PAGE, PAGE + 1, 31])
def test_however_the_prompt_was_cut(tiny: Tiny, chunk: int, kv_format: KvFormat) -> None:
    watched = Watched(tiny, kv_format, chunk_tokens=chunk)
    found = watched.answer(watched.open())
    torch.testing.assert_close(found, at_once(tiny, kv_format), rtol=0, atol=CLOSE[kv_format])


def test_however_it_was_guessed(tiny: Tiny) -> None:
    watched = Watched(tiny, KvFormat.FULL, guess_tokens=4)
    found = watched.answer(watched.open())
    torch.testing.assert_close(found, at_once(tiny, KvFormat.FULL), rtol=0, atol=CLOSE[KvFormat.FULL])
