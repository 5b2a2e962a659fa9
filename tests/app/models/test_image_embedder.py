from __future__ import annotations

from pathlib import Path

import pytest

from app.models.embedders import resolve_image_embedder
from app.models.errors import ModelError


async def test_what_the_setting_may_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hub(repository: str, models_folder: Path) -> Path:
        return models_folder / repository

    monkeypatch.setattr("app.models.embedders.fetch_from_hub", hub)
    assert await resolve_image_embedder("off", tmp_path) is None
    assert await resolve_image_embedder("someone/clip", tmp_path) == tmp_path / "someone/clip"
    with pytest.raises(ModelError, match=r"no modules\.json\); give \"off\", the folder of a CLIP"):
        await resolve_image_embedder(str(tmp_path), tmp_path)
    (tmp_path / "modules.json").write_text("[]")
    assert await resolve_image_embedder(str(tmp_path), tmp_path) == tmp_path
    with pytest.raises(ModelError, match=r"no image embedder '\./nowhere' here"):
        await resolve_image_embedder("./nowhere", tmp_path)
