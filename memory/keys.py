"""What is indexed for a passage beside its words: its date and the dates that it speaks of (chats), or its title and
heading (documents).

The turns around a chat's passage are not copied into its key: search reads them when it ranks (recall/window.py), so a
turn is found by what was said after it as well, and forgetting one leaves nothing of it with its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.period import dated
from memory.types import SourceKind


@dataclass(frozen=True, slots=True)
class Context:
    """A passage's text and what stands around it."""

    kind: SourceKind
    title: str
    heading: str
    time: float
    text: str

    def surroundings(self) -> str:
        """Everything but the text itself, for the index's second column."""
        if self.kind is not SourceKind.CHAT:
            return f"{self.title} {self.heading}".strip()
        return dated(self.text, self.time)

    def key(self) -> str:
        """The text to embed."""
        return f"{self.heading}\n{self.text}".strip() if self.kind is not SourceKind.CHAT else self.text
