"""Knowledge bases: named collections of folders and files, chosen chat by chat. Which documents are in one follows from
where their files lie, so nothing has to be kept in step."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence

from app.ids import ChatId
from app.store import rows
from app.store.db import StoreError
from app.store.types import Base

EVERYTHING = "all"
"""Chosen instead of a base, a chat searches everything again."""
_NAME = re.compile(r"[^\W_][\w.-]{0,39}")


def add(connection: sqlite3.Connection, name: str, paths: Iterable[str]) -> Base:
    """Put paths into a base; it is made when there is none of that name. Raises StoreError for a name that no base can
    have."""
    if not _NAME.fullmatch(name) or name.casefold() == EVERYTHING:
        raise StoreError(
            f"{name!r} cannot be the name of a base: use letters, digits, - and _, at most 40, and not {EVERYTHING!r}."
        )
    name = next((base.name for base in listed(connection) if base.name.casefold() == name.casefold()), name)
    connection.executemany(
        "INSERT OR IGNORE INTO bases (name, path) VALUES (?, ?)", [(name, rows.clean(path)) for path in paths]
    )
    return need(connection, name)


def remove(connection: sqlite3.Connection, name: str) -> Base:
    """Dissolve a base; its files stay. Chats that chose it alone search everything again. Raises StoreError."""
    base = need(connection, name)
    connection.execute("DELETE FROM bases WHERE name = ?", (name,))
    connection.execute("DELETE FROM chat_bases WHERE base = ?", (name,))
    return base


def listed(connection: sqlite3.Connection) -> list[Base]:
    """Every base, by name."""
    found: dict[str, list[str]] = {}
    for name, path in connection.execute("SELECT name, path FROM bases ORDER BY name, path"):
        found.setdefault(name, []).append(path)
    return [Base(name, tuple(paths)) for name, paths in found.items()]


def need(connection: sqlite3.Connection, name: str) -> Base:
    """A base by its name, in any letter case. Raises StoreError when there is none."""
    every = listed(connection)
    found = next((base for base in every if base.name.casefold() == name.casefold()), None)
    if found is None:
        there = ", ".join(base.name for base in every) or "none yet; aios-chat base add NAME FOLDER makes one"
        raise StoreError(f"There is no base {name!r}; there is {there}.")
    return found


def choose(connection: sqlite3.Connection, chat: ChatId, names: Sequence[str]) -> tuple[Base, ...]:
    """Have a chat search these bases only, or everything for no name. Raises StoreError for an unknown one."""
    chosen = tuple(dict.fromkeys(need(connection, name) for name in names))
    connection.execute("DELETE FROM chat_bases WHERE chat = ?", (chat,))
    connection.executemany("INSERT INTO chat_bases (chat, base) VALUES (?, ?)", [(chat, base.name) for base in chosen])
    return chosen


def of_chat(connection: sqlite3.Connection, chat: ChatId) -> tuple[Base, ...]:
    """The bases that a chat searches; none when it searches everything."""
    chosen = {name.casefold() for (name,) in connection.execute("SELECT base FROM chat_bases WHERE chat = ?", (chat,))}
    return tuple(base for base in listed(connection) if base.name.casefold() in chosen)


def copy(connection: sqlite3.Connection, chat: ChatId, to: ChatId) -> None:
    """A fork searches what the chat searches that it came from."""
    connection.execute("INSERT INTO chat_bases (chat, base) SELECT ?, base FROM chat_bases WHERE chat = ?", (to, chat))
