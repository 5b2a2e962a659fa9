"""Text files in any encoding."""

from __future__ import annotations

import codecs

from memory.chunking import Layout, Section
from memory.ingest.extract import Extract, Format, Job
from memory.types import NoTextError, UnsupportedFileError

_SAMPLE = 256 * 1024
"""Bytes that decide the encoding: charset-normalizer takes seconds for each megabyte."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, name: str) -> str:
    """The text of a file's bytes, lines ended by a bare newline. Raises UnsupportedFileError for binary data."""
    text = data.decode(_encoding(data, name), errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _encoding(data: bytes, name: str) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    sample = data[:_SAMPLE]
    nulls = sample.count(0)
    if nulls:
        # UTF-16 without a mark: in most texts every second byte is zero.
        odd, even = sample[1::2].count(0), sample[::2].count(0)
        if max(odd, even) > 0.3 * len(sample) / 2 and min(odd, even) < 0.05 * len(sample):
            return "utf-16-le" if odd > even else "utf-16-be"
        raise _binary(name)
    try:
        # A multi-byte character may be cut at the sample's end: `final=False` allows that.
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(data) <= _SAMPLE)
    except UnicodeDecodeError:
        return _guess(sample, name)
    return "utf-8"


def _guess(sample: bytes, name: str) -> str:
    from charset_normalizer import from_bytes

    matches = from_bytes(sample)
    best = matches.best()
    control = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
    if best is None or control > 0.02 * len(sample):
        raise _binary(name)
    # Short Western texts fit several code pages equally well: the commonest of them is meant.
    western = (match for match in matches if match.encoding == "cp1252")
    same = any((match.chaos, match.coherence) == (best.chaos, best.coherence) for match in western)
    return "cp1252" if same else best.encoding


def _binary(name: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{name} is a binary file of no kind that can be read: drop a document, a picture, or a text or code file."
    )


def read_as(job: Job, format_: Format, layout: Layout = Layout.PLAIN) -> Extract:
    """One section with its line numbers. Raises IngestError for binary or blank files."""
    job.step("read", 0, 1)
    text = decode(job.path.read_bytes(), job.name)
    if not text.strip():
        raise NoTextError(f"{job.name} holds nothing but white space: there is nothing to read in it.")
    job.step("read", 1, 1)
    return Extract(format_, (Section(text, line=1),), layout=layout)


def read(job: Job) -> Extract:
    """A plain text file."""
    return read_as(job, Format.TEXT)
