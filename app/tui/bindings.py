"""Textual bindings made from the table of actions."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from app.actions import ACTIONS, BY_ID, Action, ActionId, Context


def binding(action: Action) -> Binding:
    """One action's keys, bound to the chat screen's `act`."""
    return Binding(
        ",".join(action.keys),
        f"screen.act('{action.id.value}')",
        action.footer or action.title,
        show=bool(action.footer),
        tooltip=action.help,
    )


def bindings(*contexts: Context) -> list[BindingType]:
    """The bindings of all actions with keys in these contexts."""
    return [binding(a) for a in ACTIONS if a.context in contexts and a.keys]


def keys(action: ActionId) -> frozenset[str]:
    """The keys of one action."""
    return frozenset(BY_ID[action].keys)


_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "backspace": "Backspace"}


def key_words(action: Action) -> str:
    """An action's keys for people: "Ctrl+J, Shift+Enter"."""

    def name(key: str) -> str:
        return "+".join(
            _NAMES.get(part, part.upper() if len(key) == 1 else part.capitalize()) for part in key.split("+")
        )

    return ", ".join(name(key) if len(key) > 1 else key for key in action.keys)
