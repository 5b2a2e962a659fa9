"""What kind of file this is: by its first bytes and what is packed inside, and by its name only among texts."""

from __future__ import annotations

import re
import zipfile
from enum import StrEnum
from pathlib import Path, PurePath

from memory.types import DamagedFileError, IngestError, NoTextError, UnsupportedFileError

MAX_BYTES = 200 * 1024 * 1024
_HEAD = 4096
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_UNREADABLE = (
    (b"PK\x05\x06", "an empty archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a Windows program"),
    (b"\x1f\x8b", "a compressed file"),
    (b"BZh", "a compressed file"),
    (b"\xfd7zXZ\0", "a compressed file"),
    (b"\x28\xb5\x2f\xfd", "a compressed file"),
    (b"7z\xbc\xaf", "a compressed archive"),
    (b"Rar!", "a compressed archive"),
    (b"SQLite format 3\0", "a database"),
    (b"OggS", "a sound or film file"),
    (b"ID3", "a sound file"),
    (b"fLaC", "a sound file"),
    (b"GGUF", "a language model"),
)
_MANIFEST = "META-INF/manifest.xml"
_PACKED = ("a compressed file", "a compressed archive", "an empty archive")


class Kind(StrEnum):
    """Which reader takes a file."""

    PDF = "pdf"
    PICTURE = "picture"
    DOCX = "docx"
    PPTX = "pptx"
    LOCKED_OFFICE = "locked office"
    WORKBOOK = "workbook"
    CSV = "csv"
    OPENDOCUMENT = "opendocument"
    EPUB = "epub"
    HTML = "html"
    MAIL = "mail"
    NOTEBOOK = "notebook"
    MARKDOWN = "markdown"
    CODE = "code"
    TEXT = "text"


_BY_SUFFIX = {
    suffix: kind
    for kind, suffixes in {
        Kind.MARKDOWN: ".md .markdown .mdown .mkd",
        Kind.CSV: ".csv .tsv .psv",
        Kind.HTML: ".htm .html .xhtml",
        Kind.MAIL: ".eml",
        Kind.NOTEBOOK: ".ipynb",
        Kind.CODE: (
            ".bash .bat .c .cc .cfg .cjs .clj .cmake .conf .cpp .cs .css .cts .cu .cuh .cxx .dart .diff .dockerfile "
            ".el .erl .ex .exs .f90 .fish .fs .go .gradle .graphql .groovy .h .hh .hpp .hrl .hs .hxx .ini .java .jl "
            ".js .json .jsonl .jsx .kt .kts .lean .less .lisp .lua .m .mjs .ml .mts .nim .nix .patch .php .pl .proto "
            ".ps1 .py .pyi .r .rb .rs .sass .scala .scm .scss .sh .sol .sql .svelte .swift .tcl .tcss .tex .tf .toml "
            ".ts .tsx .v .vb .vhdl .vim .vue .xml .yaml .yml .zig .zsh"
        ),
    }.items()
    for suffix in suffixes.split()
}
_CODE_NAMES = frozenset({"dockerfile", "makefile", "cmakelists.txt", "jenkinsfile", "rakefile", "gemfile"})
_HTML = re.compile(rb"<(!doctype\s+html|html)[\s>]", re.IGNORECASE)
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Bytes that no text has in any encoding but UTF-16 and UTF-32."""
_PDF = re.compile(rb"(?:\A|[\r\n])%PDF-\d")
_PDF_BINARY = re.compile(rb"%PDF-\d[^\r\n]*[\r\n]+%[\x80-\xff]")
_PDF_OBJECT = re.compile(rb"\d \d+ obj\b")
_RTF = re.compile(rb"\{\\rtf\d?\\[a-z]")
_MAIL_HEADER = rb"[A-Za-z][A-Za-z0-9-]*:[^\r\n]*\r?\n(?:[ \t][^\r\n]*\r?\n)*"
_MAIL = re.compile(rb"\A(?:" + _MAIL_HEADER + rb"){0,20}(?:Received|Message-ID|MIME-Version):", re.IGNORECASE)
_ADVICE = "Drop a PDF, a picture, an office document, a mail, a web page, or a text, Markdown or code file."


def check(path: Path, name: str) -> None:
    """Raise IngestError, one sentence, when `path` cannot be a file to read at all."""
    try:
        if path.is_dir():
            raise IngestError(f"{name} is a folder: name the files in it.")
        if not path.exists():
            raise IngestError(f"{name} was not found: check the path.")
        if not path.is_file():
            raise UnsupportedFileError(f"{name} is not a regular file: {_ADVICE}")
        size = path.stat().st_size
    except OSError as error:
        raise IngestError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from error
    if size == 0:
        raise NoTextError(f"{name} is empty (0 bytes): there is nothing to read in it.")
    if size > MAX_BYTES:
        raise UnsupportedFileError(
            f"{name} is too large ({size / 2**20:.0f} MB; the limit is {MAX_BYTES // 2**20} MB): split it."
        )


def kind_of(path: Path, name: str) -> Kind:
    """The kind of a file that `check` let through. Raises UnsupportedFileError for kinds that cannot be read, and
    OSError where the disk refuses."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    suffix = PurePath(name).suffix.lower()
    if _is_pdf(head, suffix):
        return Kind.PDF
    if _is_picture(head):
        return Kind.PICTURE
    if suffix == ".pdf":
        raise DamagedFileError(f"{name} is not a PDF in spite of its name, or it is damaged: save it again.")
    if head.startswith(_ZIP):
        return _packed(path, name)
    if head.startswith(_OLE):
        return _ole(path, name)
    for magic, what in _UNREADABLE:
        if head.startswith(magic) and _CONTROL.search(head):  # most of them are words as well
            advice = "Unpack it and name the folder." if what in _PACKED else _ADVICE
            raise UnsupportedFileError(f"{name} is {what}, which cannot be read. {advice}")
    if _RTF.match(head) and suffix not in _BY_SUFFIX:
        raise UnsupportedFileError(f"{name} is an RTF text, which cannot be read. {_ADVICE}")
    return _text(head, suffix, name)


def _is_pdf(head: bytes, suffix: str) -> bool:
    """The mark may come after some rubbish. In a file that is not called a PDF it begins a line, and what follows is
    no text: programs and notes about PDFs name the mark too."""
    if suffix == ".pdf":
        return b"%PDF-" in head[:1024]
    mark = _PDF.search(head[:1024])
    if mark is None:
        return False
    bare = suffix not in _BY_SUFFIX and suffix != ".txt" and mark.start() == 0 and _PDF_OBJECT.search(head)
    return bool(bare) or _CONTROL.search(head) is not None or _PDF_BINARY.search(head) is not None


def _is_picture(head: bytes) -> bool:
    if head.startswith(b"BM"):  # also begins words: a bitmap has its header's size at byte 14
        return head[14:18] in (b"\x0c\0\0\0", b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0")
    known = head.startswith(_IMAGES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
    return known and _CONTROL.search(head) is not None  # GIF89a begins notes about it too


def _text(head: bytes, suffix: str, name: str) -> Kind:
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if PurePath(name).name.lower() in _CODE_NAMES or head.startswith(b"#!"):
        return Kind.CODE
    if _is_html(head):
        return Kind.HTML
    if not suffix and _MAIL.match(head):
        return Kind.MAIL
    return Kind.TEXT


def _is_html(head: bytes) -> bool:
    rest = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    while rest.startswith((b"<!--", b"<?xml")):
        end = b"-->" if rest.startswith(b"<!--") else b">"
        rest = rest.partition(end)[2].lstrip()
    return _HTML.match(rest) is not None


def _packed(path: Path, name: str) -> Kind:
    """What a ZIP file is, by the parts that its format demands."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            manifest = archive.read(_MANIFEST)[:_HEAD] if _MANIFEST in names else b""
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
        raise DamagedFileError(f"{name} is damaged or cut off: save it again from its program.") from error
    if "META-INF/container.xml" in names and _MANIFEST not in names:
        return Kind.EPUB
    if b"opendocument.spreadsheet" in manifest:
        return Kind.WORKBOOK
    if b"opendocument.text" in manifest or b"opendocument.presentation" in manifest:
        return Kind.OPENDOCUMENT
    if "[Content_Types].xml" in names:
        if any(part.startswith("word/") for part in names):
            return Kind.DOCX
        if any(part.startswith("ppt/") for part in names):
            return Kind.PPTX
        if any(part.startswith("xl/") for part in names):
            return Kind.WORKBOOK
    raise UnsupportedFileError(f"{name} is an archive, which is not read as one file. Unpack it and name the folder.")


def _ole(path: Path, name: str) -> Kind:
    """What an OLE file is: an old workbook can be read, old texts and slides cannot."""
    import olefile

    try:
        with olefile.OleFileIO(str(path)) as ole:
            parts = {"/".join(part) for part in ole.listdir()}
    except (OSError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"{name} is damaged or cut off: save it again from its program.") from error
    if "EncryptedPackage" in parts:
        return Kind.LOCKED_OFFICE
    if parts & {"Workbook", "Book"}:
        return Kind.WORKBOOK
    what = "an Outlook message" if any(part.startswith("__substg1.0_") for part in parts) else "an old Office file"
    raise UnsupportedFileError(f"{name} is {what}, which cannot be read. Save it as DOCX, PPTX or PDF first.")
