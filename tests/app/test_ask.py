"""`aios-chat ask` and the one who reads its answer."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from app.commands.ask import _Answer, _settled, constrained
from app.events import AnswerDelta
from app.host.sampling import JsonSchema, Regex
from app.ids import ChatId, MessageId
from app.settings import Settings, SettingsError

CHAT = ChatId("c1")


class Closed(io.StringIO):
    """A pipe whose reader has gone after the first line."""

    def write(self, text: str) -> int:
        if self.getvalue():
            raise BrokenPipeError
        return super().write(text)


class Desk:
    """A desk whose answer ends when it is stopped, or by itself."""

    def __init__(self) -> None:
        self.over, self.stops = asyncio.Event(), 0

    async def settled(self, _: ChatId) -> None:
        await self.over.wait()

    async def stop(self, _: ChatId) -> bool:
        self.stops += 1
        self.over.set()
        return True


async def test_an_answer_that_nobody_reads_is_stopped_and_breaks_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, desk, stopping = Closed(), Desk(), asyncio.Event()
    monkeypatch.setattr("sys.stdout", pipe)
    answer = _Answer(True, stopping.set)
    waiting = asyncio.create_task(_settled(desk, CHAT, stopping))  # type: ignore[arg-type]
    for text in ("1. Dog\n", "2. Cat\n", "3. Cow\n"):
        answer(AnswerDelta(CHAT, MessageId("m1"), text))
    await waiting
    assert (answer.unread, desk.stops, pipe.getvalue()) == (True, 1, "1. Dog\n")


async def test_an_answer_that_is_read_ends_by_itself() -> None:
    desk = Desk()
    desk.over.set()
    await _settled(desk, CHAT, asyncio.Event())  # type: ignore[arg-type]
    assert desk.stops == 0


def test_an_answer_keeps_to_a_schema_or_a_pattern(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    assert constrained(Settings(), file, None).sampling().constraint == JsonSchema('{"type": "object"}')
    assert constrained(Settings(), None, "a+").sampling().constraint == Regex("a+")
    assert constrained(Settings(), None, None).sampling().constraint is None
    with pytest.raises(SettingsError, match="both given"):
        constrained(Settings(), file, "a")
    with pytest.raises(SettingsError, match="cannot be read: no such file"):
        constrained(Settings(), tmp_path / "none.json", None)
    file.write_text("{")
    with pytest.raises(SettingsError, match="is not a JSON schema: "):
        constrained(Settings(), file, None)
