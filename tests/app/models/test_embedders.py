from __future__ import annotations

from pathlib import Path

import pytest

from app.models.embedders import resolve_embedder
from app.models.errors import ModelError


def silent(_progress: object) -> None:
    pass


async def test_a_sentence_transformers_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    assert await resolve_embedder(str(tmp_path), tmp_path / "models", silent) == tmp_path


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at all", "no such name"])
async def test_what_is_not_there_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"There is no embedder .*sentence-transformers model.*\.$"):
        await resolve_embedder(name, tmp_path, silent)


async def test_another_kind_of_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no modules\.json"):
        await resolve_embedder(str(tmp_path), tmp_path / "models", silent)


async def test_a_hub_id_comes_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def hub(repository: str, _folder: Path) -> Path:
        asked.append(repository)
        return tmp_path

    monkeypatch.setattr("app.models.embedders.fetch_from_hub", hub)
    assert await resolve_embedder("someone/a-model", tmp_path, silent) == tmp_path
    assert asked == ["someone/a-model"]
