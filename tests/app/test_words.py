"""Search before the memory is up."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.desk import Desk
from app.host.wire import SourceKind
from app.paths import Paths
from app.ports import DeskError
from app.settings import load_settings
from app.store.store import Store


async def test_a_desk_without_a_memory_finds_words_in_chats(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "settings.toml").create()
    store = Store.open(paths.chats_db)
    chat = store.create_chat()
    message = store.add_user_message(chat.id, "The zeppelin lands on a Thursday, 周四.")
    store.close()
    desk = Desk(load_settings(None), paths)
    await desk.open()
    try:
        for query in ("zeppelin", "zeppelin thurs", "周四"):
            (passage,) = (await desk.search(query)).passages
            assert (passage.message, passage.source_id, passage.source_kind) == (message.id, chat.id, SourceKind.CHAT)
            assert "zeppelin" in passage.text
        assert (await desk.search("submarine", kind=SourceKind.CHAT)).passages == ()
        with pytest.raises(DeskError):
            await desk.search("zeppelin", kind=SourceKind.DOCUMENT)
    finally:
        await desk.close()
