"""What goes to the engine of a chat: the tail of its path, and all that is pinned, however far back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.chat_prompt import PATH_MESSAGES, chat_prompt
from app.host.wire import Passage, Role, SourceKind
from app.store.store import Store
from app.store.types import MessageStatus

PASSAGE = Passage("p", "1", "d", SourceKind.DOCUMENT, "a.pdf", "a passage", 0.5, 1.0)


@pytest.fixture
def store(tmp_path: Path):
    opened = Store.open(tmp_path / "chats.db")
    yield opened
    opened.close()


def test_what_is_pinned_comes_in_order_without_what_was_recalled_for_it(store: Store) -> None:
    chat = store.create_chat("c")
    first = store.add_user_message(chat.id, "the first")
    second = store.add_user_message(chat.id, "the second", quote=first.id)
    store.set_recall(second.id, "[block]", [PASSAGE])
    for n in range(PATH_MESSAGES):
        store.add_user_message(chat.id, f"number {n}")
    silent = store.begin_answer(chat.id, store.path(chat.id, 1)[0].id)
    store.finish_answer(silent.id, "", MessageStatus.STOPPED)
    for message in (second, silent, first):
        store.pin(message.id, True)
    prompt = chat_prompt(store, chat.id)
    assert [m.id for m in prompt.pinned] == [first.id, second.id]
    assert [m.role for m in prompt.pinned] == [Role.USER, Role.USER]
    assert prompt.pinned[1].text == "I said earlier:\n> the first\n\nthe second"
    assert len(prompt.messages) == PATH_MESSAGES - 1
    assert prompt.messages[-1].text == f"number {PATH_MESSAGES - 1}"
    store.pin(first.id, False)
    assert [m.id for m in chat_prompt(store, chat.id).pinned] == [second.id]
    tried = [replace(m, text="another") for m in store.path(chat.id, 2, before=silent.id)]
    assert [m.text for m in chat_prompt(store, chat.id, tried).pinned] == ["another", "another"]


def test_a_fork_keeps_what_is_pinned_on_its_path(store: Store) -> None:
    chat = store.create_chat("c")
    first, second = (store.add_user_message(chat.id, text) for text in ("one", "two"))
    store.pin(first.id, True)
    store.pin(second.id, True)
    fork = store.fork(chat.id, first.id)
    assert [m.id for m in store.pinned(fork.id)] == [first.id]
    assert [m.id for m in store.pinned(chat.id)] == [first.id, second.id]
    store.delete_chat(chat.id)
    assert [m.id for m in store.pinned(fork.id)] == [first.id]
