"""What kind of file this is: by its first bytes, and by its name only among texts."""

from __future__ import annotations

from pathlib import Path, PurePath

from memory.ingest.extract import Format
from memory.types import IngestError

MAX_BYTES = 200 * 1024 * 1024
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_UNREADABLE = (
    (b"PK\x03\x04", "a ZIP or Office file"),
    (b"\xd0\xcf\x11\xe0", "an old Office file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a Windows program"),
    (b"\x1f\x8b", "a compressed file"),
    (b"7z\xbc\xaf", "a compressed file"),
    (b"Rar!", "a compressed file"),
    (b"SQLite format 3\0", "a database"),
    (b"OggS", "a sound or film file"),
    (b"ID3", "a sound file"),
    (b"GGUF", "a language model"),
)
_MARKDOWN = frozenset({".md", ".markdown", ".mdown", ".mkd"})
_CODE = frozenset(
    " ".join(
        (
            ".bash .bat .c .cc .cfg .clj .cmake .conf .cpp .cs .css .cu .cuh .dart .diff .dockerfile",
            ".el .erl .ex .exs .f90 .fish .fs .go .gradle .graphql .groovy .h .hpp .hrl .hs .htm .html",
            ".ini .ipynb .java .jl .js .json .jsonl .jsx .kt .kts .lean .less .lisp .lua .m .mjs .ml",
            ".nim .nix .patch .php .pl .proto .ps1 .py .pyi .r .rb .rs .sass .scala .scm .scss .sh .sol",
            ".sql .svelte .swift .tcl .tcss .tex .tf .toml .ts .tsx .v .vb .vhdl .vim .vue .xml .yaml",
            ".yml .zig .zsh",
        )
    ).split()
)
_CODE_NAMES = frozenset({"dockerfile", "makefile", "cmakelists.txt", "jenkinsfile", "rakefile", "gemfile"})
_ADVICE = "Drop a PDF, a picture, or a text, Markdown or code file."


def check(path: Path, name: str) -> None:
    """Raise IngestError, one sentence, when `path` cannot be a file to read at all."""
    try:
        if path.is_dir():
            raise IngestError(f"{name} is a folder: drop the files in it.")
        if not path.exists():
            raise IngestError(f"{name} was not found: check the path.")
        if not path.is_file():
            raise IngestError(f"{name} is not a regular file: {_ADVICE}")
        size = path.stat().st_size
    except OSError as error:
        raise IngestError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from error
    if size == 0:
        raise IngestError(f"{name} is empty (0 bytes): there is nothing to read in it.")
    if size > MAX_BYTES:
        raise IngestError(
            f"{name} is too large ({size / 2**20:.0f} MB; the limit is {MAX_BYTES // 2**20} MB): split it."
        )


def format_of(path: Path, name: str) -> Format:
    """The kind of a file that `check` let through. Raises IngestError for kinds that cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(2048)
    except OSError as error:
        raise IngestError(f"{name} cannot be read ({error.strerror or error}): check its permissions.") from error
    suffix = PurePath(name).suffix.lower()
    if b"%PDF-" in head[:1024]:
        return Format.PDF
    if head.startswith(_IMAGES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        # "BM" also begins words: a bitmap has its header's size at byte 14.
        if not head.startswith(b"BM") or head[14:18] in (
            b"\x0c\0\0\0",
            b"\x28\0\0\0",
            b"\x6c\0\0\0",
            b"\x7c\0\0\0",
        ):
            return Format.IMAGE
    elif suffix == ".pdf":
        raise IngestError(f"{name} is not a PDF in spite of its name, or it is damaged: save it again.")
    for magic, what in _UNREADABLE:
        if head.startswith(magic) and (len(magic) > 3 or b"\0" in head):
            raise IngestError(f"{name} is {what}, which cannot be read yet. {_ADVICE}")
    if suffix in _MARKDOWN:
        return Format.MARKDOWN
    if suffix in _CODE or PurePath(name).name.lower() in _CODE_NAMES or head.startswith(b"#!"):
        return Format.CODE
    return Format.TEXT
