from __future__ import annotations

from pathlib import Path

from app.drop.folder import files_of


def test_a_folder_is_read_without_what_tools_and_systems_keep_in_it(tmp_path: Path) -> None:
    wanted = ["a.txt", "b/c.md", "b/d/e.py", "node_modules.txt"]
    unwanted = [
        ".git/config",
        ".hidden",
        "b/.cache/x",
        "node_modules/pad/index.js",
        "b/__pycache__/e.pyc",
        "b/Thumbs.db",
    ]
    for name in wanted + unwanted:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "round").symlink_to(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in files_of(tmp_path)] == [
        "a.txt",
        "node_modules.txt",
        *wanted[1:3],
    ]


def test_a_folder_inside_a_hidden_one_can_be_named(tmp_path: Path) -> None:
    (tmp_path / ".notes").mkdir()
    (tmp_path / ".notes" / "a.txt").touch()
    assert list(files_of(tmp_path / ".notes")) == [tmp_path / ".notes" / "a.txt"]
