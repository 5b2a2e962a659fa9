from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app import paths
from app.paths import Paths, PathsError, write_atomically


def test_everything_is_below_the_home_that_was_set(tmp_path):
    here = Paths.default({"AIOS_CHAT_HOME": str(tmp_path / "home")})
    for path in (here.chats_db, here.memory, here.models, here.files, here.logs, here.config_file):
        assert path.is_relative_to(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_without_it_the_platform_decides():
    here = Paths.default({})
    assert here.data.name == "aios-chat"
    assert here.config_file.name == "settings.toml"


def test_a_relative_home_is_refused():
    with pytest.raises(PathsError, match="absolute"):
        Paths.default({"AIOS_CHAT_HOME": "here"})


def test_folders_are_private(tmp_path):
    old = os.umask(0)
    try:
        here = Paths(tmp_path / "a" / "data", tmp_path / "b" / "settings.toml").create()
    finally:
        os.umask(old)
    for folder in (here.data, here.memory, here.models, here.files, here.logs, here.config_file.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert here.create() == here


def test_a_file_in_the_way_costs_one_sentence(tmp_path):
    (tmp_path / "home").write_text("x")
    with pytest.raises(PathsError, match="a file, not a folder") as caught:
        Paths.default({"AIOS_CHAT_HOME": str(tmp_path / "home")}).create()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.EROFS, "read-only"), (errno.ENOSPC, "disk is full"), (errno.EACCES, "permission denied")],
)
def test_a_disk_that_refuses_costs_one_sentence(tmp_path, monkeypatch, number, says):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(paths.os, "fsync", refuse)
    with pytest.raises(PathsError, match=says):
        write_atomically(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PathsError, match=says):
        Paths.default({"AIOS_CHAT_HOME": str(tmp_path / "home")}).create()


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(paths.os, "access", lambda *_: False)
    with pytest.raises(PathsError, match="cannot be written"):
        Paths.default({"AIOS_CHAT_HOME": str(tmp_path)}).create()


def test_writing_replaces_the_whole_file(tmp_path):
    path = tmp_path / "settings.toml"
    write_atomically(path, "long " * 1000)
    write_atomically(path, b"short")
    assert path.read_bytes() == b"short"
    write_atomically(path, "长")
    assert path.read_text(encoding="utf-8") == "长"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder(tmp_path):
    with pytest.raises(PathsError, match="no such file or folder"):
        write_atomically(tmp_path / "none" / "file", "x")


def test_the_start_path_imports_nothing_heavy():
    code = (
        "import sys, app.paths, app.settings\n"
        "heavy = {'textual', 'torch', 'chromadb', 'transformers', 'PIL', 'numpy', 'sqlite3', 'filelock', 'asyncio',"
        " 'logging', 'app.host.wire', 'typer', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_store_and_the_drop_import_nothing_heavy():
    code = (
        "import sys, app.store.store, app.drop.classify, app.drop.stage, app.drop.explain\n"
        "heavy = {'textual', 'torch', 'chromadb', 'transformers', 'PIL', 'numpy', 'filelock', 'typer', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
