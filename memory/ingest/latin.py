"""Which code page a text in Latin letters is in, told by the letters that its language has: a wrong one gives signs,
and letters of several languages at once ("przes³aæ" for "przesłać", "tûrõ" for "tűrő")."""

from __future__ import annotations

import unicodedata

_ENOUGH = 0.9
"""Share of the letters beyond ASCII that must be those of one language."""
_MARKS = frozenset("\u00a0„“”‚‘’–—…«»‹›•·°§©®™€£\u00ad")
"""Stand in texts of any language."""
_WESTERN = (
    "àâæçéèêëîïôœùûüÿ",  # French
    "äöüßé",  # German
    "áéíñóúü¿¡ªº",  # Spanish
    "ãõáâàçéêíóôúü",  # Portuguese
    "àèéìíòóùú",  # Italian
    "åäöæøéü",  # the Scandinavian languages, Finnish
    "áéëïóöüèê",  # Dutch
    "áðéíóúýþæö",  # Icelandic
    "àçéèíïóòúü·",  # Catalan
)
_CENTRAL = (
    "ąćęłńóśźż",  # Polish
    "áčďéěíňóřšťúůýžüö",  # Czech
    "áäčďéíĺľňóôŕšťúýžě",  # Slovak
    "áéíóöőúüű",  # Hungarian
    "ăâîşţșțé",  # Romanian
    "čćđšžüö",  # Croatian, Slovenian
)
_TURKISH = ("çğıiöşüâîû\u0307",)
_PAGES = (("cp1252", _WESTERN), ("cp1250", _CENTRAL), ("iso8859_2", _CENTRAL), ("cp1254", _TURKISH))
"""The commonest first: where a text reads the same in two, it does not matter."""


def is_latin(text: str) -> bool:
    """Whether the letters beyond ASCII are Latin ones, or there are none."""
    letters = [character for character in text if character > "\x7f" and character.isalpha()]
    latin = sum("LATIN" in unicodedata.name(character, "") for character in letters)
    return 2 * latin >= len(letters)


def code_page(data: bytes) -> str | None:
    """The code page in which the bytes are a text of one language; None where there is none."""
    best, page = 0.0, None
    for name, languages in _PAGES:
        share = _share(data.decode(name, errors="replace"), languages)
        if share > best:
            best, page = share, name
    return page if best >= _ENOUGH else None


def _share(text: str, languages: tuple[str, ...]) -> float:
    """The share of the characters beyond ASCII that the likeliest of the languages has."""
    beyond = [character for character in text.lower() if character > "\x7f" and character not in _MARKS]
    if not beyond:
        return 0.0
    return max(sum(character in language for character in beyond) for language in languages) / len(beyond)
