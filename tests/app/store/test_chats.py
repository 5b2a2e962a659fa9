from __future__ import annotations

import json

import pytest

from app.host.wire import ForgetRequest, Passage, Role, SourceKind
from app.ids import ChatId, DocumentId, MessageId
from app.store import outbox
from app.store.messages import TITLE_LENGTH, automatic_title
from app.store.store import IngestPayload, StoreError, forget_request
from app.store.types import Attachment, Figures, MessageStatus, OutboxKind


def passage(label, message=None, source_id="d1", text="some words", kind=SourceKind.CHAT):
    return Passage(
        id=f"p{label}",
        label=label,
        source_id=source_id,
        source_kind=kind,
        title="Trip",
        text=text,
        score=0.5,
        time=1.0,
        page=2 if kind is SourceKind.DOCUMENT else None,
        message=message,
        role=None,
    )


def test_a_message_comes_back_as_it_was(store):
    chat = store.create_chat()
    first = store.add_user_message(chat.id, "first")
    attachments = (Attachment("a.pdf", "/x/a.pdf", "/f/1/a.pdf"), Attachment("b", "/b", "/f/2/b", DocumentId("d2")))
    asked = store.add_user_message(chat.id, "why?", attachments=attachments, quote=first.id)
    assert asked.attachments == attachments
    assert (asked.parent, asked.quote, asked.role) == (first.id, first.id, Role.USER)
    recalled = store.set_recall(asked.id, "<notes>", [passage("1"), passage("2", kind=SourceKind.DOCUMENT)])
    assert recalled.block == "<notes>"
    assert recalled.passages == (passage("1"), passage("2", kind=SourceKind.DOCUMENT))
    begun = store.begin_answer(chat.id, asked.id)
    assert (begun.status, begun.text, begun.parent) == (MessageStatus.STREAMING, "", asked.id)
    figures = Figures(10, 20, 0.5, 1.5, "model")
    done = store.finish_answer(
        begun.id, "because [1]", MessageStatus.STOPPED, passages=[passage("1")], citations=["1"], figures=figures
    )
    assert (done.text, done.status, done.citations, done.figures) == (
        "because [1]",
        MessageStatus.STOPPED,
        ("1",),
        figures,
    )
    assert store.message(done.id) == done
    assert store.path(chat.id) == [first, recalled, done]


def test_the_path_is_read_in_parts(store):
    chat = store.create_chat()
    ids = [store.add_user_message(chat.id, str(n)).id for n in range(10)]
    assert store.path_length(chat.id) == 10
    assert [m.id for m in store.path(chat.id)] == ids
    assert [m.id for m in store.path(chat.id, limit=3)] == ids[-3:]
    assert [m.id for m in store.path(chat.id, limit=3, before=ids[7])] == ids[4:7]
    assert [m.id for m in store.path(chat.id, before=ids[2])] == ids[:2]
    assert store.path(chat.id, before=ids[0]) == []
    assert store.path(chat.id, limit=0) == []
    assert store.path(store.create_chat().id) == []


def test_unknown_ids_cost_one_sentence(store):
    chat, message = ChatId("c0"), MessageId("m0")
    known = store.create_chat()
    for call in (
        lambda: store.path(chat),
        lambda: store.rename(chat, "x"),
        lambda: store.delete_chat(chat),
        lambda: store.add_user_message(chat, "x"),
        lambda: store.begin_answer(chat, message),
        lambda: store.begin_answer(known.id, message),
        lambda: store.fork(known.id, message),
        lambda: store.star(message, True),
        lambda: store.pin(message, True),
        lambda: store.pinned(chat),
        lambda: store.add_user_message(known.id, "x", quote=message),
        lambda: store.finish_answer(message, "x", MessageStatus.COMPLETE),
        lambda: store.export_markdown(chat),
        lambda: store.create_chat(id=known.id),
    ):
        with pytest.raises(StoreError, match=r"\.$"):
            call()
    assert store.chat(chat) is None
    assert store.message(message) is None
    assert store.journal_answer(message, "x") is False
    assert store.path(known.id) == []


def test_the_first_message_names_the_chat(store):
    chat = store.create_chat()
    store.add_user_message(chat.id, "\n  What   is\tthis?\nsecond line")
    store.add_user_message(chat.id, "And that?")
    assert store.chat(chat.id).title == "What is this?"
    named = store.create_chat("Mine")
    store.add_user_message(named.id, "hello")
    assert store.chat(named.id).title == "Mine"
    dropped = store.create_chat()
    store.add_user_message(dropped.id, "", attachments=[Attachment("a.pdf", "/a.pdf", "/f/a.pdf")])
    assert store.chat(dropped.id).title == "a.pdf"


def test_titles_are_short():
    assert automatic_title("word " * 30) == "word word word word word word word word word…"
    assert automatic_title("长" * 100) == "长" * TITLE_LENGTH + "…"
    assert automatic_title(" \n ") == ""


def test_chats_are_listed_by_use(store, turn):
    one, two = store.create_chat("one"), store.create_chat("two")
    turn(one.id, "q", "a")
    assert [(c.title, c.messages) for c in store.chats()] == [("one", 2), ("two", 0)]
    assert store.rename(two.id, " new name ").title == "new name"


def test_a_chat_is_found_by_what_a_person_types(store):
    one = store.create_chat("Trip to Rome", id=ChatId("c111aaaa2222"))
    two = store.create_chat("Work", id=ChatId("c111bbbb3333"))
    assert store.find_chat("c111aaaa2222") == one
    assert store.find_chat("c111a") == one
    assert store.find_chat("3333") == two
    assert store.find_chat("trip to rome") == one
    assert store.find_chat("333") is None
    assert store.find_chat("") is None
    assert store.find_chat("nothing") is None
    with pytest.raises(StoreError, match="fits 2 chats"):
        store.find_chat("c111")


def test_a_fork_shares_its_past_and_not_its_future(store, turn):
    chat = store.create_chat("Trip")
    asked, answered = turn(chat.id, "q1", "a1")
    turn(chat.id, "q2", "a2")
    fork = store.fork(chat.id, answered.id)
    assert (fork.title, fork.forked_from, fork.head, fork.messages) == ("Trip (fork)", answered.id, answered.id, 2)
    assert [m.id for m in store.path(fork.id)] == [asked.id, answered.id]
    turn(fork.id, "q3", "a3")
    assert [m.text for m in store.path(fork.id)] == ["q1", "a1", "q3", "a3"]
    assert [m.text for m in store.path(chat.id)] == ["q1", "a1", "q2", "a2"]
    assert store.fork(fork.id, asked.id).title == "Trip (fork)"


def test_another_answer_is_a_second_child(store, turn):
    chat = store.create_chat()
    asked, first = turn(chat.id, "q", "a1")
    second = store.begin_answer(chat.id, asked.id)
    store.finish_answer(second.id, "a2", MessageStatus.COMPLETE)
    assert [m.text for m in store.path(chat.id)] == ["q", "a2"]
    other = store.create_chat()
    store.delete_chat(other.id)
    assert store.message(first.id) is not None


def test_a_late_journal_call_never_takes_words_back(store):
    chat = store.create_chat()
    begun = store.begin_answer(chat.id, store.add_user_message(chat.id, "q").id)
    store.journal_answer(begun.id, "one two")
    store.journal_answer(begun.id, "one")
    assert store.message(begun.id).text == "one two"
    store.finish_answer(begun.id, "one", MessageStatus.COMPLETE)
    assert store.message(begun.id).text == "one", "the last word is the answer's own"


def test_favorites_are_the_last_starred_first(store, turn):
    chat = store.create_chat()
    asked, answered = turn(chat.id, "q", "a")
    assert store.star(answered.id, True).starred
    store.star(asked.id, True)
    assert [m.id for m in store.favorites()] == [asked.id, answered.id]
    store.star(answered.id, True)
    assert [m.id for m in store.favorites()] == [asked.id, answered.id]
    assert not store.star(asked.id, False).starred
    assert [m.id for m in store.favorites()] == [answered.id]


def pending(store):
    return [(item.kind, item.key) for item in store.pending(100)]


def test_a_turn_waits_for_the_memory_once_it_is_answered(store, turn):
    chat = store.create_chat()
    asked = store.add_user_message(chat.id, "q")
    assert pending(store) == []
    begun = store.begin_answer(chat.id, asked.id)
    assert pending(store) == []
    store.finish_answer(begun.id, "a", MessageStatus.COMPLETE)
    assert pending(store) == [(OutboxKind.REMEMBER, asked.id), (OutboxKind.REMEMBER, begun.id)]
    again = store.begin_answer(chat.id, asked.id)
    store.finish_answer(again.id, " \n", MessageStatus.STOPPED)
    assert len(pending(store)) == 2, "the question waits already, and an empty answer says nothing"
    remembered = store.remembered(begun.id)
    assert (remembered.chat, remembered.chat_title, remembered.text) == (chat.id, "q", "a")


def test_deleting_takes_what_no_other_chat_needs(store, turn):
    chat = store.create_chat()
    asked, answered = turn(chat.id, "q1", "a1")
    later, last = turn(chat.id, "q2", "a2")
    fork = store.fork(chat.id, answered.id)
    for item in store.pending(100):
        store.done(item.id)
    deleted = store.delete_chat(chat.id)
    assert set(deleted.messages) == {later.id, last.id}
    assert deleted.warning == ""
    assert [m.text for m in store.path(fork.id)] == ["q1", "a1"]
    assert [forget_request(key) for _, key in pending(store)] == [ForgetRequest(chat.id, (later.id, last.id))]
    assert set(store.delete_chat(fork.id).messages) == {asked.id, answered.id}
    assert {forget_request(key) for _, key in pending(store)} >= {ForgetRequest(chat.id), ForgetRequest(fork.id)}
    assert store.chats() == []
    assert store.remembered(asked.id) is None


def test_what_waits_to_be_remembered_goes_with_its_chat(store, turn):
    chat = store.create_chat()
    turn(chat.id, "q", "a")
    store.delete_chat(chat.id)
    assert pending(store) == [(OutboxKind.FORGET, chat.id)]


def test_deleting_keeps_the_path_below_a_regenerated_answer_of_a_fork(store, turn):
    chat = store.create_chat()
    _, answered = turn(chat.id, "q1", "a1")
    fork = store.fork(chat.id, answered.id)
    asked = store.add_user_message(fork.id, "q2")
    first = store.begin_answer(fork.id, asked.id)
    store.finish_answer(first.id, "a2", MessageStatus.COMPLETE)
    store.begin_answer(fork.id, asked.id)
    assert store.delete_chat(chat.id).messages == ()
    assert store.message(first.id).text == "a2"


def test_deleted_words_are_in_no_file(store, turn, tmp_path):
    keep, gone = store.create_chat(), store.create_chat()
    for n in range(30):
        turn(keep.id, f"keepsake{n} " * 20, "fine " * 50)
        turn(gone.id, f"tellnoone{n} " * 20, "秘密的话 " * 50)
    begun = store.begin_answer(gone.id, store.path(gone.id)[-1].id)
    store.journal_answer(begun.id, "tellnoone journalled")
    quoting = store.add_user_message(keep.id, "quoted", quote=store.path(gone.id)[0].id)
    leaked = passage("1", store.path(gone.id)[0].id, gone.id, "tellnoone0 recalled")
    cut = passage("2", None, gone.id, "tellnoone cut short")
    store.set_recall(quoting.id, "block: tellnoone0 recalled; harmless", [leaked, passage("3")])
    other = store.add_user_message(keep.id, "more")
    store.set_recall(other.id, "block: tellnoone cut…", [cut])
    assert store.delete_chat(gone.id).warning == ""
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"tellnoone" not in held
    assert "秘密".encode() not in held
    assert b"keepsake7" in held
    with store._database.read() as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    after = store.message(quoting.id)
    assert (after.quote, after.block) == (None, "block: [deleted]; harmless")
    assert [p.text for p in after.passages] == ["[deleted]", "some words"]
    assert store.message(other.id).block == ""


def test_a_document_is_learnt_listed_and_forgotten(store):
    chat = store.create_chat()
    file = Attachment("a.pdf", "/x/a.pdf", "/files/1/a.pdf")
    store.add_user_message(chat.id, "one", attachments=[file])
    fork = store.fork(chat.id, store.add_user_message(chat.id, "again", attachments=[file]).id)
    store.add_user_message(fork.id, "b", attachments=[Attachment("b", "/b", "/files/2/b")])
    assert store.chat_documents(chat.id) == ()
    assert store.set_document("/files/1/a.pdf", DocumentId("d1")) == 2
    store.set_document("/files/2/b", DocumentId("d2"))
    assert store.chat_documents(chat.id) == ("d1",)
    assert store.chat_documents(fork.id) == ("d1", "d2")
    assert store.path(chat.id)[0].attachments[0].document == "d1"
    deleted = store.delete_chat(fork.id)
    assert (deleted.documents, deleted.staged) == (("d2",), ("/files/2/b",))
    assert store.delete_document(DocumentId("d1")) == ("/files/1/a.pdf",)
    assert store.chat_documents(chat.id) == ()
    assert (OutboxKind.FORGET, "d1") in pending(store)


def test_a_staged_copy_that_waits_for_somebody_else_is_not_given_up(store):
    chat = store.create_chat()
    files = [Attachment(n, f"/{n}", f"/files/{n}/{n}") for n in ("a", "b", "c")]
    store.add_user_message(chat.id, "x", attachments=files)
    store.enqueue_ingest(IngestPayload("/files/a/a", "a", "/a", None))
    store.enqueue_ingest(IngestPayload("/files/c/c", "c", "/c", chat.id))
    assert store.delete_chat(chat.id).staged == ("/files/b/b", "/files/c/c")
    assert [key for kind, key in pending(store) if kind is OutboxKind.INGEST] == [
        IngestPayload("/files/a/a", "a", "/a", None).to_key()
    ]


def test_the_outbox_holds_each_item_once_and_counts_failures(store):
    payload = IngestPayload("/files/a", "a", "/a", ChatId("c1"))
    store.enqueue_ingest(payload)
    store.enqueue(OutboxKind.FORGET, "d1")
    store.enqueue_ingest(payload)
    items = store.pending()
    assert [item.kind for item in items] == [OutboxKind.FORGET, OutboxKind.INGEST], "the newer wish comes last"
    assert IngestPayload.from_key(items[1].key) == payload
    for n in range(outbox.MOST_ATTEMPTS):
        assert store.pending()[0].attempts == n
        store.failed(items[0].id, "no disk")
    assert [item.id for item in store.pending()] == [items[1].id]
    store.recover()
    assert (store.pending()[0].attempts, store.pending()[0].error) == (0, "no disk")
    for _ in range(2):
        store.done(items[0].id)
    store.enqueue(OutboxKind.FORGET, "d1")
    store.done(items[0].id)
    assert len(store.pending()) == 2


def test_forget_keys_round_trip():
    for request in (ForgetRequest("c1"), ForgetRequest("c1", (MessageId("m1"), MessageId("m2")))):
        assert forget_request(outbox.forget_key(request)) == request


def test_export(store):
    chat = store.create_chat("Trip\nto [b]Rome")
    file = Attachment("a.pdf", "/x/a.pdf", "/files/1/a.pdf")
    first = store.add_user_message(chat.id, "line one\nline two", attachments=[file])
    asked = store.add_user_message(chat.id, "what of it?", quote=first.id)
    begun = store.begin_answer(chat.id, asked.id)
    store.finish_answer(
        begun.id,
        "this [1]",
        MessageStatus.STOPPED,
        passages=[passage("1", kind=SourceKind.DOCUMENT), passage("2")],
        citations=["1"],
    )
    store.star(begun.id, True)
    store.pin(first.id, True)
    text = store.export_markdown(chat.id)
    assert text.startswith("# Trip to [b]Rome\n\n## You · ")
    assert " · pinned\n\n- file: a.pdf" in text
    assert "\n\n- file: a.pdf\n\nline one\nline two\n" in text
    assert "\n\n> line one\n> line two\n\nwhat of it?\n" in text
    assert "· stopped · ★\n\nthis [1]\n\nSources:\n- [1] Trip, page 2\n" in text
    data = json.loads(store.export_json(chat.id))
    assert data["format"] == "aios-chat/1"
    assert [m["text"] for m in data["messages"]] == ["line one\nline two", "what of it?", "this [1]"]
    assert [m["pinned"] for m in data["messages"]] == [True, False, False]
    assert data["messages"][0]["attachments"][0]["name"] == "a.pdf"


def test_half_characters_do_not_stop_a_message(store):
    chat = store.create_chat("\ud83d")
    message = store.add_user_message(chat.id, "a\ud83db", attachments=[Attachment("\udce9", "\udce9", "/f")])
    assert message.text == "a?b"
    assert store.chat(chat.id).title == "?"


def test_a_chat_of_five_thousand_turns_opens(store):
    chat = store.create_chat()
    with store._database.write() as connection:
        rows = [
            (f"m{n}", chat.id, f"m{n - 1}" if n else None, n + 1, "user", f"text {n}", float(n), "complete")
            for n in range(10_000)
        ]
        connection.executemany(
            "INSERT INTO messages (id, chat, parent, depth, role, text, created, status) VALUES (?,?,?,?,?,?,?,?)", rows
        )
        connection.execute("UPDATE chats SET head = 'm9999' WHERE id = ?", (chat.id,))
    assert store.path_length(chat.id) == 10_000
    assert [m.text for m in store.path(chat.id, limit=2)] == ["text 9998", "text 9999"]
    assert len(store.path(chat.id)) == 10_000
