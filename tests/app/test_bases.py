"""Knowledge bases from the command line to the question that the memory is asked."""

from __future__ import annotations

import json
from pathlib import Path

from app.ids import new_chat_id
from app.store.store import Store
from tests.app.test_cli import aios, is_one_sentence
from tests.app.test_conversation import OPTIONS, ScriptedHost


def test_bases_are_listed_and_dissolved(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    store.add_to_base("house", [str(tmp_path), "/gone"])
    store.close()
    told = aios(tmp_path, "base", "list").stdout
    assert told == f"house\n   /gone  (not there now)\n   {tmp_path}\n"
    assert json.loads(aios(tmp_path, "base", "list", "--json").stdout) == [
        {"name": "house", "paths": ["/gone", str(tmp_path)]}
    ]
    assert "stay in the memory" in aios(tmp_path, "base", "remove", "house").stdout
    for arguments, names in ((["remove", "house"], "house"), (["add", "x", "/no/such/folder"], "/no/such/folder")):
        refused = aios(tmp_path, "base", *arguments)
        assert refused.returncode == 1
        assert is_one_sentence(refused.stderr)
        assert names in refused.stderr
    assert aios(tmp_path, "base", "list").stdout == ""


async def test_the_memory_is_asked_within_the_bases_of_the_chat(tmp_path: Path) -> None:
    from app.conversation import Conversation
    from app.host import wire

    store, host = Store.open(tmp_path / "chats.db"), ScriptedHost()
    host.recalled = wire.Recalled("nothing", "none", "", (), "", 0, 0.0)
    store.add_to_base("house", ["/house", "/garden"])
    for names, asked in (([], ()), (["house"], ("/garden", "/house"))):
        chat = new_chat_id()
        store.create_chat(id=chat)
        store.choose_bases(chat, names)
        question = store.add_user_message(chat, "Where is the key?")
        await Conversation(chat, store, host, lambda _: None).answer(question, OPTIONS, ())  # type: ignore[arg-type]
        assert host.asked[-1].bases == asked
    store.close()
