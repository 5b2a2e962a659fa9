"""The README's table of keys, made from the table of actions: `python -m tests.readme` writes it."""

from __future__ import annotations

from pathlib import Path

from app.actions import ACTIONS
from app.tui.bindings import key_words

README = Path(__file__).parents[1] / "README.md"
OPEN, CLOSE = "<!-- keys: `python -m tests.readme` writes them from app/actions.py -->\n", "<!-- /keys -->"


def keys_table() -> str:
    """A Markdown table: keys, command, what it does."""
    rows = ["| keys | command | |", "|---|---|---|"]
    for action in ACTIONS:
        keys = key_words(action) if action.keys else ""
        command = f"`{action.usage}`" if action.usage else ""
        rows.append(f"| {keys} | {command} | {action.help} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def written(readme: str) -> str:
    """The README with its table made anew."""
    head, _, rest = readme.partition(OPEN)
    _, _, tail = rest.partition(CLOSE)
    return f"{head}{OPEN}{keys_table()}{CLOSE}{tail}"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
