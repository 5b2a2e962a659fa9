"""Chats and reads files, one line on stdout for each thing that is acknowledged, until it is killed.

Arguments: the data folder, the embedder's folder, the first number, and "late" to begin when the vectors are open.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path

import memory.memory
from app.host.wire import Role
from app.store.store import Store
from app.store.types import MessageStatus
from memory.types import Message, SourceId
from tests.memory.programs.quick_embedder import QuickEmbedder


def main() -> None:
    folder, embedder, first, when = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    memory.memory.Embedder = QuickEmbedder  # type: ignore[misc]
    store = Store.open(folder / "chats.db")
    store.recover()
    opened = memory.memory.Memory.open(folder / "memory", embedder)
    if when == "late":
        opened.wait_until_indexed()
    chat = store.create_chat().id
    for number in count(first):
        asked = store.add_user_message(chat, f"Note {number}: the zorb{number} is blue.")
        tell("asked", number)
        answer = store.begin_answer(chat, asked.id)
        store.journal_answer(answer.id, f"Written down: zorb{number}")
        tell("shown", number)
        store.finish_answer(answer.id, f"Written down: zorb{number}, blue.", MessageStatus.COMPLETE)
        tell("answered", number)
        for role, message in ((Role.USER, asked), (Role.ASSISTANT, store.message(answer.id))):
            assert message is not None
            opened.remember(
                [Message(SourceId(chat), "Notes", message.id, message.parent, role.value, message.text, time.time())]
            )
        tell("remembered", number)
        file = folder / f"file{number}.txt"
        file.write_text(f"Page {number}.\n\nThe krill{number} swims north.\n" + "More about the sea. " * 300)
        opened.ingest(file, file.name, str(file), lambda _progress: None, lambda: False)
        tell("ingested", number)


def tell(what: str, number: int) -> None:
    print(what, number, flush=True)


main()
