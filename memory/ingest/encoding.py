"""The text in a file's bytes, in whatever encoding they were written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import islice

from memory.ingest.latin import code_page, is_latin
from memory.types import UnsupportedFileError

_SAMPLE = 256 * 1024
"""Bytes that decide the encoding: charset-normalizer takes seconds for each megabyte."""
_AROUND = 64
"""ASCII bytes to each side of others that are judged with them: the words they stand in."""
_MOST_STRAYS = 100_000
_AS_GOOD = 0.1
_KANA = 0.25
"""Share of hiragana among what is not ASCII; in Japanese about half."""
_SHIFT_JIS = ("cp932", "shift_jis", "shift_jis_2004", "shift_jisx0213")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_RUN = re.compile(rb"[\x80-\xff]+")


def decode(data: bytes, name: str) -> str:
    """The text of a file's bytes, lines ended by a bare newline. Raises UnsupportedFileError for binary data."""
    return _decoded(data, name).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _decoded(data: bytes, name: str) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if 0 in data[:_SAMPLE]:
        return data.decode(_wide(data[:_SAMPLE], name), errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _utf8_with_strays(data) or data.decode(_guess(_judged(data), name), errors="replace")


def _wide(sample: bytes, name: str) -> str:
    """UTF-16 without a mark: in most texts every second byte is zero."""
    odd, even = sample[1::2].count(0), sample[::2].count(0)
    if max(odd, even) > 0.3 * len(sample) / 2 and min(odd, even) < 0.05 * len(sample):
        return "utf-16-le" if odd > even else "utf-16-be"
    raise _binary(name)


def _utf8_with_strays(data: bytes) -> str:
    """UTF-8 into which bytes of a Western code page were pasted, or that is cut inside a character; "" when the
    bytes are no such text."""
    good = bad = 0
    for run in islice(_RUN.finditer(data), _MOST_STRAYS):
        try:
            run.group().decode("utf-8")
            good += 1
        except UnicodeDecodeError:
            bad += 1
    if good < bad and not _few_strays(data):
        return ""
    return data.decode("utf-8", errors=_AS_WESTERN)


def _few_strays(data: bytes) -> bool:
    """Whether hardly a byte of the first non-ASCII ones is outside a UTF-8 character, where words are not parted by
    spaces and one stray spoils a whole line."""
    some = b"".join(run.group() for run in islice(_RUN.finditer(data), 1000))[:_SAMPLE]
    kept = len(some.decode("utf-8", errors="ignore").encode("utf-8"))
    return len(some) - kept <= 0.1 * kept


def _western(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("cp1252", errors="replace"), error.end


_AS_WESTERN = "aios-chat-western"
codecs.register_error(_AS_WESTERN, _western)


def _judged(data: bytes) -> bytes:
    """The first bytes that are not ASCII, wherever they stand, with the words around them."""

    def pieces() -> Iterator[bytes]:
        first = after = size = 0
        for run in _RUN.finditer(data):
            if run.start() - _AROUND > after:
                yield data[first:after]
                size += after - first
                first = run.start() - _AROUND
            after = run.end() + _AROUND
            if size + after - first > _SAMPLE:
                break
        yield data[first:after][:_SAMPLE]

    return b"\n".join(piece for piece in pieces() if piece)


def _guess(sample: bytes, name: str) -> str:
    from charset_normalizer import from_bytes

    if (japanese := _japanese(sample)) is not None:
        return japanese
    matches = from_bytes(sample)
    best = matches.best()
    if best is not None and _half_width(str(best)):
        matches = from_bytes(sample, cp_exclusion=list(_SHIFT_JIS))
        best = matches.best()
    control = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
    if best is None or control > 0.02 * len(sample):
        raise _binary(name)
    # Texts in Latin letters fit several code pages about equally well: their language knows better.
    if is_latin(str(best)) and (page := code_page(sample)) is not None:
        return page
    # Else the commonest is meant.
    western = (match for match in matches if match.encoding == "cp1252")
    same = any(match.chaos <= best.chaos and match.coherence >= best.coherence - _AS_GOOD for match in western)
    return "cp1252" if same else best.encoding


def _japanese(sample: bytes) -> str | None:
    """The Japanese encoding in which a good part of the bytes is hiragana: no other language's bytes are."""
    for encoding in ("euc_jp", "cp932"):
        text = sample.decode(encoding, errors="ignore")
        beyond = [character for character in text if character > "\x7f"]
        if sum("\u3041" <= character <= "\u309f" for character in beyond) > _KANA * len(beyond):
            return encoding
    return None


def _half_width(text: str) -> bool:
    """Whether most letters are half-width katakana: what Cyrillic looks like as Shift JIS, and nobody writes."""
    letters = [character for character in text if character > "\x7f"]
    return 2 * sum("\uff61" <= character <= "\uff9f" for character in letters) > len(letters)


def _binary(name: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{name} is a binary file of no kind that can be read: drop a document, a picture, or a text or code file."
    )
