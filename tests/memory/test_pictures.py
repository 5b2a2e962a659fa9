"""Pictures found by what they show, with a CLIP model that knows four colours; and without one, nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import Memory
from memory.picture_model import PictureModel
from memory.types import IngestReport, NoTextError, RecallError, RecallRequest, SourceId
from tests.memory.ingest.test_parts import pictures as pages_of_text
from tests.memory.tiny_clip import COLOURS, picture, write_clip

Open = Callable[[Path | None], Memory]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip") / "tiny")


@pytest.fixture
def open_memory(tmp_path: Path, embedder_folder: Path) -> Iterator[Open]:
    opened: list[Memory] = []

    def start(model: Path | None) -> Memory:
        for memory in opened:
            memory.close()
        opened[:] = [Memory.open(tmp_path / "memory", embedder_folder, threads=1, image_embedder=model)]
        return opened[0]

    yield start
    opened[0].close()


@pytest.fixture
def photos(tmp_path: Path) -> dict[str, Path]:
    """One plain picture for each colour, under names that say nothing."""
    files = {name: tmp_path / f"IMG_{number}.png" for number, name in enumerate(COLOURS)}
    for name, file in files.items():
        picture(COLOURS[name]).save(file)
    return files


def ingest(memory: Memory, file: Path) -> IngestReport:
    return memory.ingest(file, file.name, str(file), lambda progress: None, lambda: False)


def first(memory: Memory, query: str) -> str:
    hits = memory.search(query, 1)
    return hits[0].passage.source.title if hits else ""


def test_a_picture_without_words_is_found_by_what_it_shows(
    open_memory: Open, clip: Path, photos: dict[str, Path]
) -> None:
    memory = open_memory(clip)
    for file in photos.values():
        assert ingest(memory, file).passages == 1
    for name, file in photos.items():
        assert first(memory, f"the screenshot with the {name} chart") == file.name
    recall = memory.recall(RecallRequest("Which file is the red chart?", SourceId("chat")), len)
    assert recall.hits[0].passage.source.title == photos["red"].name
    assert photos["red"].name in recall.block

    # Another model: other vectors of another length, made from the copies that were kept.
    memory = open_memory(write_clip(photos["red"].parent / "other", width=24))
    assert first(memory, "a blue chart") == photos["blue"].name
    assert memory.counts().problem == ""

    def copies() -> list[Path]:
        files = (photos["red"].parent / "memory").rglob("*")
        return [file for file in files if file.is_file() and b"\xff\xd8\xff\xe0\x00\x10JFIF" in file.read_bytes()]

    assert copies()
    for row in memory.documents():
        memory.forget(row.source.id)
    assert first(memory, "a blue chart") == ""
    assert not copies()


def test_the_vector_is_what_the_model_gives(clip: Path) -> None:
    model = PictureModel(clip)
    from memory.ingest.image import _thumbnail

    asked = model.question("red chart")
    shown = {name: model.picture(_thumbnail(picture(rgb), 448)) for name, rgb in COLOURS.items()}
    assert all(np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5) for vector in (asked, *shown.values()))
    cosines = {name: float(asked @ vector) for name, vector in shown.items()}
    assert max(cosines, key=cosines.__getitem__) == "red"
    sure = {name: model.sureness(asked, vector) for name, vector in shown.items()}
    assert sorted(sure, key=sure.__getitem__)[-1] == "red"
    assert sure["red"] > 0.9
    plain = model.question("a picture")
    assert all(model.sureness(plain, vector) <= 0.5 for vector in shown.values())


def test_without_a_model_nothing_changes_and_one_that_comes_later_sees_what_was_read_before(
    tmp_path: Path, open_memory: Open, clip: Path, photos: dict[str, Path]
) -> None:
    memory = open_memory(None)
    with pytest.raises(NoTextError, match="only pictures of text"):
        ingest(memory, photos["red"])
    page = tmp_path / "page.png"
    pages_of_text(("harbour",))[0].convert("RGB").point(lambda value: value).save(page)
    report = ingest(memory, page)
    assert not (tmp_path / "memory" / "pictures").exists()

    memory = open_memory(clip)
    assert ingest(memory, page).already_known
    assert memory._store.pictures is not None
    assert memory._store.pictures.has(report.source.id)
    assert "harbour" in memory.search("harbour", 1)[0].passage.text


def test_a_model_that_cannot_do_it_costs_a_sentence_and_no_search(
    tmp_path: Path, open_memory: Open, embedder_folder: Path, photos: dict[str, Path]
) -> None:
    with pytest.raises(RecallError, match="no image embedder"):
        PictureModel(tmp_path)
    memory = open_memory(embedder_folder)
    ingest(memory, photos["red"])
    assert first(memory, photos["red"].name) == photos["red"].name
    assert "choose a CLIP model" in memory.counts().problem
