"""What waits in a session being computed without an answer: a window rebuilt from text, a prompt read before it is
asked."""

from __future__ import annotations

from dataclasses import dataclass

from engine.answer import Priority
from engine.events import PromptRead
from engine.session import Session


@dataclass(slots=True)
class Reading:
    """`done` tokens were computed so far; it ends when nothing waits any more, what was added meanwhile included."""

    priority: Priority
    done: int = 0

    def went_on(self, session: Session, count: int) -> PromptRead:
        """`count` more tokens of `session` were computed."""
        self.done += count
        return PromptRead(session.id, self.done, self.done + len(session.pending))
