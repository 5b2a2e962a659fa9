"""Any sequence of what the desk does to the store, crashes included, keeps what was said and says it once."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from app.store.store import Store
from app.store.types import MessageStatus, OutboxKind

texts = st.text("ab 长é\n", max_size=12)
ended = st.sampled_from([MessageStatus.COMPLETE, MessageStatus.STOPPED, MessageStatus.FAILED])


@dataclass
class Said:
    """The model's copy of a message."""

    parent: str | None
    chat: str
    text: str
    streaming: bool = False
    starred: bool = False
    pinned: bool = False


@dataclass
class Model:
    """What the store should hold."""

    heads: dict[str, str | None] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    remembered: list[str] = field(default_factory=list)
    """Ids the memory was given, each time it was."""
    forgotten: set[str] = field(default_factory=set)

    def path(self, head: str | None) -> list[str]:
        ids: list[str] = []
        while head is not None:
            ids.append(head)
            head = self.said[head].parent
        return ids[::-1]


class StoreMachine(RuleBasedStateMachine):
    chats = Bundle("chats")
    answers = Bundle("answers")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.open()
        self.model = Model()

    def open(self) -> None:
        self.store = Store.open(self.folder / "chats.db")
        # Syncing guards against power loss only, which is not played here, and takes most of the time.
        self.store._database._connection.execute("PRAGMA synchronous = OFF")

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def alive(self, chat: str) -> bool:
        return chat in self.model.heads

    @initialize(target=chats)
    def first_chat(self):
        return self.new_chat()

    @rule(target=chats)
    def create(self):
        return self.new_chat()

    def new_chat(self):
        chat = self.store.create_chat()
        self.model.heads[chat.id] = None
        return chat.id

    @rule(target=answers, chat=chats, text=texts)
    def ask(self, chat, text):
        if not self.alive(chat):
            return multiple()
        asked = self.store.add_user_message(chat, text)
        self.model.said[asked.id] = Said(self.model.heads[chat], chat, text)
        begun = self.store.begin_answer(chat, asked.id)
        self.model.said[begun.id] = Said(asked.id, chat, "", streaming=True)
        self.model.heads[chat] = begun.id
        return begun.id

    @rule(target=answers, answer=answers)
    def regenerate(self, answer):
        said = self.model.said.get(answer)
        if said is None or not self.alive(said.chat):
            return multiple()
        again = self.store.begin_answer(said.chat, said.parent)
        self.model.said[again.id] = Said(said.parent, said.chat, "", streaming=True)
        self.model.heads[said.chat] = again.id
        return again.id

    @rule(answer=answers, more=texts)
    def journal(self, answer, more):
        said = self.model.said.get(answer)
        streams = said is not None and said.streaming
        if not streams:
            assert self.store.journal_answer(answer, more) is False
            return
        said.text += more
        self.store.journal_answer(answer, said.text)

    @rule(answer=answers, more=texts, status=ended)
    def finish(self, answer, more, status):
        said = self.model.said.get(answer)
        if said is None or not said.streaming:
            return
        said.text += more
        said.streaming = False
        assert self.store.finish_answer(answer, said.text, status).status is status

    @rule()
    def crash_and_reopen(self):
        # The connection goes, and with it the lock that says this writer lives; nothing is finished or tidied.
        self.store.close()
        self.open()
        recovered = self.store.recover()
        lost = {id_ for id_, said in self.model.said.items() if said.streaming}
        assert {message.id for message in recovered} == lost
        for message in recovered:
            assert message.status is MessageStatus.INTERRUPTED
            assert message.text == self.model.said[message.id].text
            self.model.said[message.id].streaming = False
        assert self.store.recover() == []

    @rule()
    def another_program_recovers(self):
        other = Store.open(self.folder / "chats.db")
        try:
            assert other.recover() == []
        finally:
            other.close()

    @rule(target=chats, answer=answers)
    def fork(self, answer):
        said = self.model.said.get(answer)
        if said is None or not self.alive(said.chat):
            return multiple()
        fork = self.store.fork(said.chat, answer)
        self.model.heads[fork.id] = answer
        return fork.id

    @rule(answer=answers, starred=st.booleans())
    def star(self, answer, starred):
        if answer in self.model.said:
            self.store.star(answer, starred)
            self.model.said[answer].starred = starred

    @rule(answer=answers, pinned=st.booleans())
    def pin(self, answer, pinned):
        if answer in self.model.said:
            assert self.store.pin(answer, pinned).pinned is pinned
            self.model.said[answer].pinned = pinned

    @rule(chat=consumes(chats))
    def delete(self, chat):
        if not self.alive(chat):
            return
        deleted = set(self.store.delete_chat(chat).messages)
        del self.model.heads[chat]
        needed = {id_ for head in self.model.heads.values() for id_ in self.model.path(head)}
        for id_, said in self.model.said.items():
            if self.alive(said.chat):
                needed.update(self.model.path(id_))
        assert deleted == set(self.model.said) - needed
        self.model.said = {id_: said for id_, said in self.model.said.items() if id_ in needed}
        self.model.forgotten |= deleted

    @rule(limit=st.integers(1, 4), fails=st.booleans())
    def pump(self, limit, fails):
        for item in self.store.pending(limit):
            if fails:
                self.store.failed(item.id, "not now")
                continue
            if item.kind is OutboxKind.REMEMBER:
                assert self.store.remembered(item.key) is not None
                self.model.remembered.append(item.key)
            self.store.done(item.id)

    @invariant()
    def every_path_is_a_chain_of_what_was_said(self):
        assert {chat.id: chat.messages for chat in self.store.chats()} == {
            chat: len(self.model.path(head)) for chat, head in self.model.heads.items()
        }
        for chat, head in self.model.heads.items():
            path = self.store.path(chat)
            assert [message.id for message in path] == self.model.path(head)
            assert [message.parent for message in path] == [None, *(m.id for m in path)][: len(path)]
            for message in path:
                said = self.model.said[message.id]
                assert message.text == said.text
                assert (message.status is MessageStatus.STREAMING) == said.streaming
                assert message.starred == said.starred
                assert message.pinned == said.pinned
            assert self.store.pinned(chat) == [message for message in path if message.pinned]

    @invariant()
    def what_is_said_reaches_the_memory_once(self):
        assert len(self.model.remembered) == len(set(self.model.remembered))
        with self.store._database.read() as connection:
            waiting = [key for (key,) in connection.execute("SELECT key FROM outbox WHERE kind = 'remember'")]
        assert len(waiting) == len(set(waiting))
        reached = set(waiting) | set(self.model.remembered)
        assert not set(waiting) & set(self.model.remembered)
        finished = {
            id_
            for id_, said in self.model.said.items()
            if not said.streaming and said.text.strip() and self.is_answer(id_)
        }
        assert finished <= reached
        assert not set(waiting) & self.model.forgotten

    def is_answer(self, id_: str) -> bool:
        said = self.model.said[id_]
        return said.parent is not None and self.store.message(id_).role == "assistant"

    @invariant()
    def the_favourites_are_the_starred(self):
        starred = {id_ for id_, said in self.model.said.items() if said.starred}
        assert {message.id for message in self.store.favorites()} == starred

    @invariant()
    def the_index_holds_the_messages(self):
        with self.store._database.write() as connection:
            for index in ("message_words", "message_trigrams"):
                connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            assert connection.execute("SELECT count(*) FROM messages").fetchone() == (len(self.model.said),)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
