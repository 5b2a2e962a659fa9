"""What a file is taken for: honest texts by their names, whatever their first words; other files by their bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from memory.ingest.sniff import Kind, kind_of
from memory.types import UnsupportedFileError
from tests.memory.ingest import made
from tests.memory.ingest.reading import refusal

_MARKS = [
    "%PDF-1.7",
    "GGUF",
    "Rar!",
    "OggS",
    "fLaC",
    "{\\rtf",
    "{\\rtf1",
    "ID3",
    "MZ",
    "BM",
    "BZh",
    "GIF89a",
    "RIFF1234WEBP",
]
_NAMES = {"a.md": Kind.MARKDOWN, "a.txt": Kind.TEXT, "a.py": Kind.CODE, "notes": Kind.TEXT}


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("mark", _MARKS)
def test_a_text_about_files_is_a_text(tmp_path: Path, name: str, mark: str) -> None:
    file = tmp_path / name
    for before in ("", "# The mark of a file\n\n", "MAGIC = b'''\n"):
        for after in (" is how the file begins, für Größe.\n", "\n1 0 object, and text.\n", "'''\n"):
            for encoding in ("utf-8", "cp1252"):
                file.write_bytes(f"{before}{mark}{after}".encode(encoding))
                assert kind_of(file, name) is _NAMES[name]


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.bin", "a.txt", "a.py"])
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
@pytest.mark.parametrize("binary", [b"%\xe2\xe3\xcf\xd3\n", b"%\xc2\xb5\xc2\xb6\n"])
def test_a_pdf_whatever_it_is_called(tmp_path: Path, name: str, before: bytes, binary: bytes) -> None:
    file = tmp_path / name
    data = made.pdf(tmp_path / "made.pdf").read_bytes()
    file.write_bytes(before + data)
    assert kind_of(file, name) is Kind.PDF
    file.write_bytes(before + b"%PDF-1.4\r\n" + binary + b"1 0 obj\n<<>>\nendobj\n")
    assert kind_of(file, name) is Kind.PDF


@pytest.mark.parametrize("name", ["a.pdf", "a", "download.bin"])
def test_a_pdf_of_letters_alone(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with pymupdf.open() as document:
        document.new_page()
        document.save(file, ascii=True)
    file.write_bytes(file.read_bytes().replace(b"%\xc2\xb5\xc2\xb6\n", b""))
    assert file.read_bytes().isascii()
    assert kind_of(file, name) is Kind.PDF


_PACKED = {
    "gz": gzip.compress(b"text " * 9),
    "bz2": bz2.compress(b"text " * 99),
    "xz": lzma.compress(b"text " * 9),
    "rar": b"Rar!\x1a\x07\x01\x00" + b"x" * 40,
    "ogg": b"OggS\0\x02" + b"x" * 40,
    "flac": b"fLaC\0\0\0\x22" + b"x" * 40,
    "gguf": b"GGUF\x03\0\0\0" + b"x" * 40,
    "mp3": b"ID3\x03\0\0" + b"x" * 40,
    "exe": b"MZ\x90\0" + b"x" * 40,
    "db": b"SQLite format 3\0" + b"x" * 40,
    "rtf": b"{\\rtf1\\ansi Words.}",
}


@pytest.mark.parametrize("suffix", _PACKED)
def test_files_that_cannot_be_read_are_known_by_their_bytes(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.{suffix}"
    file.write_bytes(_PACKED[suffix])
    assert "which cannot be read" in refusal(file, UnsupportedFileError)


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_pictures_are_known_by_their_bytes(tmp_path: Path, format_: str) -> None:
    file = tmp_path / "picture"
    Image.new("RGB", (300, 300), "white").save(file, format_)
    assert kind_of(file, file.name) is Kind.PICTURE


_COMMENT = "<!-- a -->\n"
_PAGES = {
    "bare": ("<html>", True),
    "comments": (_COMMENT * 28 + "<html>", True),
    "declared": (f"\ufeff<?xml version='1.0'?>\n{_COMMENT * 3}<!DOCTYPE html>", True),
    "comments and no page": (_COMMENT * 28 + "<div>x</div>", False),
    "one comment": (_COMMENT, False),
    "no end": ("<!-- a -->" * 300 + "<!-- a", False),
    "begun": ("<!--" * 1000, False),
    "ends": ("<!--" + "-->" * 1300, False),
    "blanks": ("<?xml ?>" + " " * 4000, False),
    "xml": ("<?xml version='1.0'?><note/>", False),
}


@pytest.mark.parametrize("name", _PAGES)
def test_a_page_is_known_behind_any_comments(tmp_path: Path, name: str) -> None:
    text, page = _PAGES[name]
    file = tmp_path / "page.txt"
    file.write_text(text, encoding="utf-8")
    assert kind_of(file, file.name) is (Kind.HTML if page else Kind.TEXT)


@pytest.mark.parametrize(
    "line", ["X-Note: a\n", "A:" * 1000, "A: b\n" * 400, "A: b\n\t" * 600, "Received" * 400, "a" * 4096, "-" * 4096]
)
def test_no_first_bytes_hold_up_the_search_for_a_mail(tmp_path: Path, line: str) -> None:
    file = tmp_path / "mail"
    file.write_text(line)
    assert kind_of(file, file.name) is Kind.TEXT
