from __future__ import annotations

import pytest

from app.store.store import Store


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "chats.db")
    yield opened
    opened.close()


@pytest.fixture
def turn(store):
    """Adds one finished turn to a chat: (question, answer)."""

    def add(chat, question, answer):
        from app.store.types import MessageStatus

        asked = store.add_user_message(chat, question)
        begun = store.begin_answer(chat, asked.id)
        return asked, store.finish_answer(begun.id, answer, MessageStatus.COMPLETE)

    return add
