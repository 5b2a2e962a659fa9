"""The bottom line: the keys that matter where the focus is, made from the table of actions."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from app.actions import ACTIONS, Action, ActionId, Context

_SHORT = {"escape": "Esc", "enter": "Enter"}


def short_key(action: Action) -> str:
    """An action's first key as the bar writes it: "^O", "Esc", "F1"."""
    key = action.keys[0]
    if key.startswith("ctrl+"):
        rest = key.removeprefix("ctrl+")
        return f"^{rest.capitalize()}"
    return _SHORT.get(key, key if len(key) == 1 else key.capitalize())


class KeyBar(Widget):
    """One line, redrawn in place. Textual's own footer mounts a widget a key anew six times at each change of
    focus, which was most of the 0.25 s that moving between prompt and messages cost."""

    DEFAULT_CSS = """
    KeyBar { height: 1; dock: bottom; background: $panel; color: $foreground 75%; padding: 0 1; }
    """
    context: reactive[Context] = reactive(Context.CHAT)

    def actions(self) -> list[Action]:
        """What stands in the bar now, the most specific first."""
        shown = [a for a in ACTIONS if a.footer and a.keys]
        mine = [a for a in shown if a.context is self.context]
        return mine + [a for a in shown if a.context is Context.GLOBAL]

    def render(self) -> Content:
        """As many as fit, help always among them."""
        actions, gap = self._fitting()
        keys = (Content.assemble((short_key(a), "bold $text-accent"), f" {a.footer}") for a in actions)
        return Content(" " * gap).join(keys)

    def _fitting(self) -> tuple[list[Action], int]:
        """The actions that fit and the space between two of them."""
        actions, room = self.actions(), self.content_size.width
        gap = 2 if _width(actions, 2) <= room else 1
        while len(actions) > 1 and _width(actions, gap) > room:
            spare = [a for a in actions if a.id is not ActionId.HELP]
            actions.remove(spare[-1])
        return actions, gap

    async def on_click(self, event: events.Click) -> None:
        """A click does what the key does."""
        actions, gap = self._fitting()
        offset = event.get_content_offset(self)
        for count, action in enumerate(actions, 1):
            if offset is not None and offset.x < _width(actions[:count], gap) + gap:
                await self.run_action(f"screen.act('{action.id.value}')")
                return


def _width(actions: list[Action], gap: int) -> int:
    return sum(len(short_key(a)) + 1 + len(a.footer) + gap for a in actions) - gap
