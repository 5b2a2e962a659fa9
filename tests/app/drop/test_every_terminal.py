"""For every terminal and awkward name: what it pastes for dropped files is read as those files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from app.drop.classify import PathKind, classify
from app.drop.parse import joined, parse

Quoter = Callable[[list[str]], str]

ITERM2 = r"""\()"&'!$<>;|*?[]#`{}^+=@~""" + " \t\r\n"
GHOSTTY = r"""\"'()[]{}<>`!#$&;|*?""" + " \t\n"


def escaped(characters: str, name: str) -> str:
    return "".join("\\" + c if c in characters else c for c in name)


def single_quoted(name: str) -> str:
    return "'" + name.replace("'", "'\\''") + "'"


def double_quoted(name: str) -> str:
    return '"' + re.sub(r'([\\"$`])', r"\\\1", name) + '"'


def windows_quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


QUOTERS: dict[str, Quoter] = {
    "iterm2 backslashes": lambda names: " ".join(escaped(ITERM2, n) for n in names),
    "iterm2 single quotes": lambda names: " ".join(map(single_quoted, names)),
    "iterm2 double quotes": lambda names: " ".join(map(double_quoted, names)),
    "terminal.app escaped": lambda names: "".join(escaped(ITERM2, n) + " " for n in names),
    "kitty at a prompt": lambda names: " ".join(map(shlex.quote, names)),
    "gnome-terminal": lambda names: "".join(single_quoted(n) + " " for n in names),
    "konsole": lambda names: "".join(shlex.quote(n) + " " for n in names),
    "windows terminal under wsl": lambda names: " ".join(map(single_quoted, names)),
    "ghostty macos": lambda names: " ".join(escaped(GHOSTTY, n) for n in names),
    "file uris, lines": lambda names: "\r\n".join(Path(n).as_uri() for n in names) + "\r\n",
    "file uris, words": lambda names: " ".join(Path(n).as_uri() for n in names),
    "file uris, localhost": lambda names: " ".join("file://localhost" + Path(n).as_uri()[7:] for n in names),
}
"""Terminals whose text says where a name ends, whatever is in the name."""

LINE_QUOTERS: dict[str, Quoter] = {
    "kitty": "\n".join,
    "kitty, as textual delivers it": "\r".join,
    "ghostty gtk": lambda names: "".join(escaped(GHOSTTY.replace("\n", ""), n) + "\n" for n in names),
}
"""Terminals that put one name a line: a newline in a name cannot be told from the end of it."""

RAW_QUOTERS: dict[str, Quoter] = {
    "terminal.app": lambda names: "".join(n + " " for n in names),
    "alacritty, coalesced": lambda names: "".join(n + " " for n in names),
    "wezterm": lambda names: "".join(n.replace(" ", "\\ ") + " " for n in names),
}
"""Terminals that quote little or nothing: only the disk tells where a name ends."""

WINDOWS_QUOTERS: dict[str, Quoter] = {
    "windows terminal": lambda names: " ".join(map(windows_quoted, names)),
    "wezterm on windows": lambda names: "".join(windows_quoted(n) + " " for n in names),
}

AWKWARD = {
    "plain": "report.pdf",
    "space": "my report.pdf",
    "two spaces": "my  report.pdf",
    "space at the end": "report ",
    "single quote": "it's.txt",
    "double quote": 'a "b".txt',
    "backslash": "a\\b.txt",
    "backslash and space": "a\\ b.txt",
    "dollar": "$HOME.txt",
    "ampersand": "a & b.txt",
    "semicolon": "a;b.txt",
    "hash": "#1.txt",
    "percent": "50%20.txt",
    "question mark": "why?.txt",
    "tilde": "~a~.txt",
    "backquote": "`id`.txt",
    "emoji": "👩‍👩‍👧 🎉.png",
    "cjk": "报告 最终版.pdf",
    "narrow no-break space": "Screenshot 2026-11-03 at 10.00.00\u202fAM.png",
    "decomposed accent": "re\u0301sume\u0301.txt",
    "leading dash": "-rf",
    "255 bytes": "x" * 251 + ".txt",
    "85 wide characters": "长" * 85,
}

FOLDERS = ["/tmp", "/home/me/My Documents", "/Users/zoë/Desktop", "/"]


def disk(names):
    """A disk on which exactly `names` exist."""
    return lambda path: PathKind.FILE if path in names else PathKind.MISSING


def found(text, names):
    return [str(named.path) for named in classify(text, disk(names))]


def lists(name: str) -> list[list[str]]:
    """1, 2 and 5 files, the awkward name first, last and among plain ones."""
    path = f"/tmp/{name}"
    return [
        [path],
        [path, "/tmp/b.txt"],
        ["/tmp/b.txt", path],
        ["/home/me/My Documents/a b", path, "/tmp/b.txt", f"/var/{name}", "/tmp/c"],
    ]


@pytest.mark.parametrize("name", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.parametrize("quote", QUOTERS.values(), ids=QUOTERS)
def test_quoted_names_are_read_without_the_disk_and_found_on_it(quote, name):
    for names in lists(name):
        text = quote(names)
        assert tuple(names) in [reading.names for reading in parse(text)]
        assert found(text, names) == names


@pytest.mark.parametrize("name", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.parametrize(
    "quote",
    [*LINE_QUOTERS.values(), *RAW_QUOTERS.values()],
    ids=[*LINE_QUOTERS, *RAW_QUOTERS],
)
def test_names_that_only_the_disk_can_tell_apart_are_found(quote, name):
    for names in lists(name):
        assert found(quote(names), names) == names


@pytest.mark.parametrize("quote", WINDOWS_QUOTERS.values(), ids=WINDOWS_QUOTERS)
def test_windows_names_mixed_quoted_and_bare(quote):
    names = [
        "C:\\tmp\\a b.txt",
        "C:\\tmp\\c.txt",
        "\\\\server\\share\\d e.txt",
        "D:/x.txt",
        "C:\\it's $1 & co.txt",
    ]
    for some in ([names[0]], [names[1]], names[:2], names):
        assert tuple(some) in [reading.names for reading in parse(quote(some))]
        assert found(quote(some), some) == some


def test_windows_uri():
    assert [r.names for r in parse("file:///C:/tmp/a%20b.txt")] == [("C:/tmp/a b.txt",)]


name_parts = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\0"), min_size=1, max_size=30
).filter(lambda part: part not in (".", ".."))
likely_parts = st.text("ab '\"\\$&;#!~`%-\u202f\u00a0é👍中", min_size=1, max_size=12).filter(
    lambda part: part not in (".", "..")
)
paths = st.builds(
    lambda folder, part: f"{folder}/{part}".replace("//", "/"),
    st.sampled_from(FOLDERS),
    name_parts | likely_parts,
)


@given(st.lists(paths, min_size=1, max_size=5), st.sampled_from(sorted(QUOTERS)))
@example(["/tmp/a\nb", "/tmp/c"], "gnome-terminal")
@example(["/tmp/a\nb", "/tmp/c"], "iterm2 backslashes")
def test_any_quoted_names_are_among_the_readings(names, terminal):
    text = QUOTERS[terminal](names)
    assert tuple(names) in [reading.names for reading in parse(text)]


@given(
    st.lists(paths, min_size=1, max_size=5),
    st.sampled_from(sorted(QUOTERS | LINE_QUOTERS | RAW_QUOTERS)),
)
def test_any_names_are_found_on_the_disk(names, terminal):
    quoters = QUOTERS | LINE_QUOTERS | RAW_QUOTERS
    # One name that is another with more words behind it is two readings of the same text.
    assume(not any(a != b and b.startswith(a) for a in names for b in names))
    # Where nothing is quoted, "a " + "b" is "a" + " b", and a backslash at the end escapes the separator.
    if terminal not in QUOTERS:
        assume(not any(name.endswith(("\\", " ")) for name in names))
    assert found(quoters[terminal](names), names) == names


def test_a_newline_in_a_name_arrives_as_a_carriage_return():
    name = "/tmp/two\nlines.txt"
    assert found("'/tmp/two\rlines.txt' ", [name]) == [name]
    assert found("/tmp/two\rlines.txt", [name]) == [name]


def test_rio_puts_nuls_between_characters():
    assert found("\0".join("/tmp/a b.txt"), ["/tmp/a b.txt"]) == ["/tmp/a b.txt"]


@given(st.text(max_size=300))
def test_nothing_pasted_raises(text):
    parse(text)
    parse("/" + text)
    assert classify("/" + text, disk(())) == ()


@given(st.text("/~ab \\'\"\n\r\t:", max_size=300))
def test_nothing_that_looks_like_paths_raises(text):
    for candidates in joined("/" + text):
        for first in range(len(candidates.starts)):
            assert all(piece in candidates.text for piece, _ in candidates.pieces(first))
    assert classify("/" + text, disk(())) == ()
