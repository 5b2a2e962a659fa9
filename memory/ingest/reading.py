"""What a reader of pictures gives back."""

from __future__ import annotations

from dataclasses import dataclass

from memory.types import RecallError


class OcrError(RecallError):
    """A picture was not read: a tool or a language is missing, or it gave up; one sentence with what to do."""


@dataclass(frozen=True, slots=True)
class OcrText:
    """What was read. `confidence` is the mean over what was read, 0..100; 0 when that is nothing."""

    text: str
    confidence: float

    @property
    def letters(self) -> int:
        """How many letters and digits there are."""
        return sum(character.isalnum() for character in self.text)


def is_cjk(text: str) -> bool:
    """Whether a good part of the letters are Chinese or Japanese."""
    letters = [character for character in text if character.isalpha()]
    cjk = sum("\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" for character in letters)
    return cjk > 0.1 * len(letters)
