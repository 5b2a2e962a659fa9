"""`aios-chat`: the screen."""

from __future__ import annotations

import gc
from functools import partial

from app.ids import ChatId
from app.paths import Paths
from app.ports import DeskError, DeskPort
from app.settings import Settings
from app.tui.app import AiosChatApp


def screen(settings: Settings, chat: str | None) -> int:
    """Show the chat screen until it is closed. `chat` names a stored chat to open. Raises DeskError."""
    paths = Paths.default().create()
    opened = None if chat is None else _find(paths, chat)
    # What the imports made stays for good: the collector need never look at it again. The app switches it on.
    gc.freeze()
    app = AiosChatApp(partial(_desk, settings, paths), opened, theme=settings.theme)
    app.run()
    return app.return_code or 0


def _desk(settings: Settings, paths: Paths) -> DeskPort:
    # Here and not above: the frame need not wait for it. See tests/bench/start.py.
    from app.desk import Desk

    return Desk(settings, paths)


def _find(paths: Paths, given: str) -> ChatId:
    from app.store.store import Store

    store = Store.open(paths.chats_db)
    try:
        chat = store.find_chat(given)
    finally:
        store.close()
    if chat is None:
        raise DeskError(f"There is no chat {given!r}; `aios-chat chats` lists them.")
    return chat.id
