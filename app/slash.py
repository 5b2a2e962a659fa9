"""Typed `/commands`: read one, and complete one. The words are the table's."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from app.actions import BY_COMMAND, Action

_COMMAND = re.compile(r"/([A-Za-z]+)(?:[ \t]+([^\n]*))?\Z")


@dataclass(frozen=True, slots=True)
class Command:
    """A typed `/command` with what followed it."""

    action: Action
    argument: str


class CommandError(Exception):
    """One sentence: no such command, or words after one that takes none."""


def parse_command(text: str) -> Command | None:
    """Read a typed line as a `/command`; None when it is not shaped like one (a message, a path).

    A leading space makes any text a message. Raises CommandError for an unknown command.
    """
    match = _COMMAND.match(text.rstrip())
    if match is None:
        return None
    word, argument = match.group(1).lower(), (match.group(2) or "").strip()
    action = BY_COMMAND.get(word)
    if action is None:
        close = difflib.get_close_matches(word, BY_COMMAND, n=1)
        hint = f"did you mean /{close[0]}?" if close else "/help lists them."
        raise CommandError(f"There is no command /{word}: {hint} To send it as a message, put a space before it.")
    if argument and not action.argument:
        raise CommandError(f"/{word} takes nothing after it.")
    return Command(action, argument)


def matching_commands(text: str) -> tuple[Action, ...]:
    """The actions whose command begins as `text` does; for completion while a single word is typed."""
    if not re.fullmatch(r"/[A-Za-z]*", text):
        return ()
    return tuple(action for word, action in sorted(BY_COMMAND.items()) if word.startswith(text[1:].lower()))
