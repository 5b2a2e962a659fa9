"""Whether the text layer of a PDF page says something, or only its picture does."""

from __future__ import annotations

import re
import unicodedata

ENOUGH_LETTERS = 25
"""A page with fewer letters than this and a picture over half of it is a scan with a stamp or a page number."""
_GLYPH_IDS = re.compile(r"\(cid:\d+\)|/?\bglyph<[^>]{1,40}>|/(?:g|gid|uni|glyph)\d{2,6}\b", re.IGNORECASE)
_LATIN = re.compile(r"[A-Za-z]")
_VOWEL = re.compile(r"[aeiouyAEIOUY]")
_JUDGED = 60
"""Latin letters from which their mix can be judged."""
_VOWELS = 0.22
"""Share of vowels among Latin letters: 0.33 to 0.5 in the languages written with them, 0.16 where a font without
a Unicode map shifts every letter by 29 places ("7KH TXLFN EURZQ IR[")."""


def usable(text: str) -> bool:
    """Whether a text layer is text. Fonts without a Unicode map give replacement and private characters, controls,
    names of glyphs, or letters that are no words."""
    bare = "".join(_GLYPH_IDS.sub("\ufffd\ufffd\ufffd", text).split())
    if not bare:
        return False
    bad = sum(map(_is_no_text, bare))
    count = letters(bare)
    # A handful of signs with hardly a letter is a font without a map, too; longer texts may be full of dots.
    return bad < 0.2 * len(bare) and count > (0 if count >= ENOUGH_LETTERS else 0.3 * len(bare)) and _has_words(text)


def letters(text: str) -> int:
    """How many letters and digits there are."""
    return sum(character.isalnum() for character in text)


def _is_no_text(character: str) -> bool:
    return (
        character == "\ufffd"
        or "\ue000" <= character <= "\uf8ff"
        or character >= "\U000f0000"
        or (character < " " or "\x7f" <= character <= "\x9f")
    )


def _has_words(text: str) -> bool:
    latin = len(_LATIN.findall(text))
    if latin < _JUDGED or 2 * latin < letters(text):
        return True
    # Decomposed, so that an accented vowel is one.
    return len(_VOWEL.findall(unicodedata.normalize("NFD", text))) >= _VOWELS * latin
