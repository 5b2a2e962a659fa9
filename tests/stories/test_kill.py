"""kill -9 of the whole program while an answer streams: nothing shown is lost, and the outbox finishes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.host.wire import Role, SourceKind
from app.store.store import Store
from app.store.types import MessageStatus
from tests.stories.people import at_the_desk, home
from tests.terminal import Terminal

QUESTION = "Tell me a long story about a lighthouse keeper named Ottoline."


@pytest.mark.slow
async def test_kill_while_streaming(tmp_path: Path) -> None:
    paths = home(tmp_path)
    terminal = Terminal(tmp_path, "--temperature", "0", "--max-tokens", "1000", "--window", "1024")
    terminal.wait_for("Ask anything")
    terminal.type(QUESTION)
    terminal.press("\r")
    watcher = Store.open(paths.chats_db)

    def journalled() -> str:
        # The program writes beside us: between any two reads a chat may still be without messages.
        told = [message for chat in watcher.chats() for message in watcher.path(chat.id)]
        return told[-1].text if told and told[-1].role is Role.ASSISTANT else ""

    terminal.wait_until(lambda: len(journalled().split()) >= 15, "fifteen words of the answer in the journal")
    shown = journalled()
    terminal.kill()
    watcher.close()

    async with at_the_desk(tmp_path) as person:
        chat = (await person.desk.chats())[0]
        question, answer = (await person.desk.open_chat(chat.id)).messages
        assert question.text == QUESTION
        assert answer.status is MessageStatus.INTERRUPTED
        assert answer.text.startswith(shown)
        await person.desk.indexed()
        found = await person.desk.search("lighthouse keeper Ottoline", kind=SourceKind.CHAT)
        assert {p.message for p in found.passages} == {question.id, answer.id}
        again = await person.ask(chat.id, "Who is the story about? Answer with the name.")
        assert re.search("Ottoline", again.text)
