"""What no extracted text may carry: characters that a person cannot see, and characters that mean nothing.

Zero-width and bidirectional controls hide words from the reader, or words from the search; tag characters and
variation selectors carry whole sentences that only a model sees.
"""

from __future__ import annotations

from collections.abc import Iterator

_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
_LINE_ENDS = {0x0B: "\n", 0x0C: "\n", 0x85: "\n", 0x2028: "\n", 0x2029: "\n"}
_UNSEEN = (
    (0x00, 0x09),
    (0x0E, 0x20),
    (0x7F, 0x85),
    (0x86, 0xA0),
    (0xAD, 0xAE),  # soft hyphen
    (0x034F, 0x0350),  # grapheme joiner
    (0x061C, 0x061D),  # Arabic letter mark
    (0x115F, 0x1161),  # Hangul fillers
    (0x17B4, 0x17B6),
    (0x180B, 0x1810),
    (0x200B, 0x2010),  # zero-width characters and direction marks
    (0x202A, 0x202F),  # embeddings and overrides
    (0x2060, 0x2070),  # word joiner, invisible operators, isolates
    (0x3164, 0x3165),
    (0xD800, 0xE000),  # lone surrogates
    (0xFE00, 0xFE10),  # variation selectors
    (0xFEFF, 0xFF00),
    (0xFFA0, 0xFFA1),
    (0xFFF0, 0xFFFC),
    (0x1D173, 0x1D17B),
    (0xE0000, 0xE1000),  # tags and supplementary variation selectors
)


def _table() -> Iterator[tuple[int, str]]:
    for first, after in _UNSEEN:
        yield from ((code, "") for code in range(first, after))
    yield from _LINE_ENDS.items()
    yield from ((ord(ligature), letters) for ligature, letters in _LIGATURES.items())


_CLEAN = dict(_table())


def clean(text: str) -> str:
    """`text` with what cannot be seen taken out, ligatures spelled and lines ended by a bare newline."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CLEAN)
