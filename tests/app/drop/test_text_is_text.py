from __future__ import annotations

import pytest

from app.drop.classify import MOST_PROBES, PathKind, classify, probe, spellings
from app.drop.explain import explain
from app.drop.parse import LONGEST_DROP, parse

TEXTS = {
    "prose": "Please look at /etc/passwd and tell me what it says.",
    "a relative name": "README.md",
    "a relative path": "src/app/main.py",
    "a path with a dot": "./README.md",
    "nothing": "",
    "spaces": " \r\n ",
    "an unknown user": "~nobody_by_that_name/x",
    "a web address": "https://example.org/a.pdf",
    "code": "#!/bin/sh\necho hi\n",
    "100 KB of words": "word " * 20_000,
    "100 KB of paths": "/tmp/x " * 15_000,
    "an escape sequence": "/tmp/\x1b[31mred",
    "a C1 control": "/tmp/\x9b31m",
    "control-C": "/tmp/a\x03",
    "a slash command": "/help me with this",
    "an open quote": "'/tmp/never closed",
    "a bad uri": "file://[/x",
    "another machine's uri": "file://server/x",
    "a name too long": "/" + "x" * 5000,
    "a comment": "// TODO: this",
    "a tilde": "~ 5 % more",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_is_no_drop(text):
    assert classify(text) == ()


@pytest.mark.parametrize("name", ["README.md", "a relative", "100 KB of words", "an escape sequence", "code"])
def test_the_shape_alone_tells_most_texts(name):
    assert parse(TEXTS.get(name, name)) == ()


def test_a_relative_name_is_text_even_where_the_file_exists(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("hello")
    monkeypatch.chdir(tmp_path)
    assert classify("README.md") == ()
    assert classify(str(tmp_path / "README.md"))[0].kind is PathKind.FILE


def test_a_paste_asks_the_disk_only_so_often():
    asked = []

    def count(path):
        asked.append(path)
        return PathKind.MISSING

    text = " /a" * (LONGEST_DROP // 3)
    assert classify(text.strip(), count) == ()
    assert classify(" /a é" * 900, count) == ()
    assert classify(" /ab" * 900, count) == ()
    assert len(asked) <= 3 * MOST_PROBES


def test_kinds(tmp_path):
    (tmp_path / "a file").write_text("x")
    assert probe(str(tmp_path / "a file")) is PathKind.FILE
    assert probe(str(tmp_path)) is PathKind.FOLDER
    assert probe("/dev/null") is PathKind.OTHER
    assert probe(str(tmp_path / "none")) is PathKind.MISSING
    assert probe("/nul\0byte") is PathKind.MISSING
    assert probe("/" + "x" * 300) is PathKind.MISSING
    assert [n.kind for n in classify(f"'{tmp_path}' '{tmp_path}/a file'")] == [PathKind.FOLDER, PathKind.FILE]


def test_one_missing_name_makes_the_whole_paste_text(tmp_path):
    (tmp_path / "a").write_text("x")
    assert classify(f"{tmp_path}/a {tmp_path}/b") == ()


@pytest.mark.parametrize(
    ("on_disk", "pasted"),
    [
        ("Screenshot at 10.00.00\u202fAM.png", "Screenshot at 10.00.00 AM.png"),
        ("Screenshot at 10.00.00 AM.png", "Screenshot at 10.00.00\u202fAM.png"),
        ("a\u00a0b.png", "a b.png"),
        ("re\u0301sume\u0301.txt", "r\u00e9sum\u00e9.txt"),
        ("r\u00e9sum\u00e9.txt", "re\u0301sume\u0301.txt"),
    ],
)
def test_the_disk_may_spell_a_name_otherwise(tmp_path, on_disk, pasted):
    (tmp_path / on_disk).write_text("x")
    assert [n.path for n in classify(f"'{tmp_path}/{pasted}'")] == [tmp_path / on_disk]


def test_a_plain_name_has_one_spelling():
    assert list(spellings("/tmp/a.txt")) == ["/tmp/a.txt"]


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b.txt").write_text("x")
    assert [n.path for n in classify("~/a\\ b.txt")] == [tmp_path / "a b.txt"]


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        ("/no/such/file.pdf", {}, "the folder /no/such does not exist"),
        ("/tmp/no such file.pdf", {}, "moved or deleted"),
        ("/Users/me/a.pdf", {"SSH_CONNECTION": "1 2 3 4"}, "over ssh"),
        ("'/tmp/cost 5.pdf' ", {"TERM_PROGRAM": "vscode"}, "VS Code"),
        ('"C:\\tmp\\a b.txt"', {}, "Windows path"),
        ("sftp://host/a.pdf", {}, "another machine"),
        ("file://server/share/a.pdf", {}, "another machine"),
    ],
)
def test_a_drop_that_names_nothing_is_explained_in_one_sentence(text, environ, says):
    sentence = explain(text, environ)
    assert says in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("text", ["", "hello", "README.md", "/help me with this", "~ 5 %", "/tmp/a\nand so on"])
def test_words_need_no_explanation(text):
    assert explain(text, {}) == ""


def test_the_missing_name_of_several_is_the_one_named(tmp_path):
    (tmp_path / "here").write_text("x")
    assert f"{tmp_path}/gone" in explain(f"'{tmp_path}/here' '{tmp_path}/gone'", {})
