"""What a reader of pictures gives back."""

from __future__ import annotations

from dataclasses import dataclass

from memory.types import RecallError

DOUBTFUL = 60.0
"""Confidence below which a person is told to look for themselves."""


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


def doubt(what: str, reading: OcrText) -> str:
    """The sentence to give with a text that was read with little confidence; empty when there is nothing to say."""
    if not reading.text.strip() or reading.confidence >= DOUBTFUL:
        return ""
    return f"{what} was hard to read ({reading.confidence:.0f} % sure): look at it before you rely on the text."


def is_cjk(text: str) -> bool:
    """Whether a good part of the letters are Chinese or Japanese."""
    letters = [character for character in text if character.isalpha()]
    cjk = sum("\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" for character in letters)
    return cjk > 0.1 * len(letters)
