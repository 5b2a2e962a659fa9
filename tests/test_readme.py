"""What the README says is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.readme import README, written

ROOT = README.parent


def test_the_table_of_keys_is_that_of_the_actions() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == written(text), "run `python -m tests.readme`"


def test_pictures_and_links_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("http") or (ROOT / target).is_file(), target


def test_the_first_two_commands_are_install_and_start_then_install_and_test() -> None:
    commands = re.findall(r"^    (.+)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands[0] == "python3 -m pip install -e . && aios-chat"
    assert commands[1] == "python3 -m pip install -e '.[dev]' && pytest"
    assert commands[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("install -q", "install").replace(
        "pytest -q", "pytest"
    )


def test_the_licence_is_agpl() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "AGPL-3.0-or-later"
    assert Path(ROOT / "LICENSE").read_text().lstrip().startswith("GNU AFFERO GENERAL PUBLIC LICENSE")
