from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.drop import stage as staging
from app.drop.stage import DropError, stage, unstage


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_bytes_are_copied_under_their_hash(tmp_path, files):
    source = tmp_path / "a b.txt"
    source.write_bytes(b"hello\n" * 1000)
    staged = stage(source, files)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert staged.sha256 == digest
    assert staged.size == 6000
    assert Path(staged.attachment.staged) == files / digest / "a b.txt"
    assert staged.attachment.name == "a b.txt"
    assert staged.attachment.origin == str(source)
    source.unlink()
    assert Path(staged.attachment.staged).read_bytes() == b"hello\n" * 1000
    assert all_files(files) == [files / digest / "a b.txt"]


def test_the_same_bytes_are_on_the_disk_once(tmp_path, files):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
    (tmp_path / "x" / "one.txt").write_text("same")
    (tmp_path / "y" / "one.txt").write_text("same")
    (tmp_path / "y" / "two.md").write_text("same")
    staged = [stage(tmp_path / name, files).attachment.staged for name in ("x/one.txt", "y/one.txt", "y/two.md")]
    assert staged[0] == staged[1] != staged[2]
    assert len({os.stat(path).st_ino for path in staged}) == 1
    assert unstage(staged[0], files)
    assert Path(staged[2]).read_text() == "same"
    assert unstage(staged[2], files)
    assert list(files.iterdir()) == []
    assert not unstage(staged[2], files)


def test_only_what_is_staged_can_be_unstaged(tmp_path, files):
    precious = tmp_path / "precious"
    precious.write_text("x")
    assert not unstage(str(precious), files)
    assert not unstage(str(files / ".." / "precious"), files)
    assert precious.exists()


def test_what_cannot_be_taken_costs_one_sentence(tmp_path, files):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, says in [
        ("missing", "no file"),
        ("empty", "is empty"),
        ("files", "is a folder"),
        ("pipe", "a pipe"),
        ("x" * 300, "too long"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(DropError, match=says) as caught:
            stage(tmp_path / name, files)
        assert str(caught.value).endswith(".")
    with pytest.raises(DropError, match="device"):
        stage(Path("/dev/zero"), files)
    assert list(files.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path, files):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(DropError, match="may not read"):
        stage(tmp_path / "secret", files)


def test_a_file_that_is_too_large(tmp_path, files):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(staging.LARGEST_FILE + 1)
    with pytest.raises(DropError, match=r"more than 1 GiB"):
        stage(tmp_path / "huge", files)
    assert list(files.iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(tmp_path, files, monkeypatch):
    (tmp_path / "a").write_text("x")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging.os, "fsync", full)
    with pytest.raises(DropError, match="disk is full"):
        stage(tmp_path / "a", files)
    assert list(files.iterdir()) == []


def test_the_folder_of_copies_is_gone(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(DropError, match="cannot be copied"):
        stage(tmp_path / "a", tmp_path / "no folder")


def test_a_disk_without_links_keeps_two_copies(tmp_path, files, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(staging.os, "link", refuse)
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")
        assert Path(stage(tmp_path / name, files).attachment.staged).read_text() == "same"


def test_a_name_that_is_not_text_is_staged_under_one_that_is(tmp_path, files):
    source = os.fsencode(tmp_path) + b"/caf\xe9\n.txt"
    with open(source, "wb") as file:
        file.write(b"x")
    staged = stage(Path(os.fsdecode(source)), files)
    assert staged.attachment.name == "caf__.txt"
    assert staged.attachment.origin.endswith("caf\\xe9\n.txt")
    assert Path(staged.attachment.staged).read_bytes() == b"x"


@given(st.text(st.characters(), min_size=1, max_size=400))
def test_any_name_is_made_to_fit(name):
    fit = staging._fit(name)
    assert 0 < len(fit.encode()) <= 255
    assert not any(c in "/\\" or ord(c) < 32 for c in fit)


def test_a_name_of_255_bytes(tmp_path, files):
    source = tmp_path / ("长" * 83 + ".pdf")
    source.write_text("x")
    assert stage(source, files).attachment.name == source.name
