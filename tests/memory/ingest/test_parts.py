"""Long scans are read part by part: searched as they go, gone on with after a restart, never held up by one page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest
from PIL import Image, ImageDraw, ImageFont

from memory import Memory
from memory.chunking import Section
from memory.ingest import parts
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.readers import read_file
from memory.types import DamagedFileError, IngestCancelledError, IngestReport, NoTextError

WORDS = ("harbour", "ledger", "lighthouse", "telescope", "gardener")


def pictures(words: tuple[str, ...] = WORDS) -> list[Image.Image]:
    """A page with one sentence for each word; a blank one for ""."""
    pages = []
    for word in words:
        page = Image.new("L", (1100, 300), "white")
        if word:
            text = f"The {word} is mentioned\non this page and no other."
            ImageDraw.Draw(page).multiline_text((80, 80), text, fill="black", font=ImageFont.load_default(size=52))
        pages.append(page)
    return pages


def scanned_pdf(file: Path, words: tuple[str, ...] = WORDS) -> Path:
    document = pymupdf.open()
    for number, picture in enumerate(pictures(words)):
        png = file.with_name(f"{number}.png")
        picture.save(png)
        document.new_page(width=550, height=150).insert_image(pymupdf.Rect(0, 0, 550, 150), filename=str(png))
    document.save(file)
    return file


def scanned_tiff(file: Path) -> Path:
    first, *others = pictures()
    first.save(file, save_all=True, append_images=others)
    return file


def job(file: Path) -> Job:
    return Job(file, file.name, "eng", lambda _progress: None, lambda: False)


def ingest(memory: Memory, file: Path) -> IngestReport:
    return memory.ingest(file, file.name, str(file), lambda progress: None, lambda: False)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_SECONDS", 0.0)


@pytest.mark.parametrize("make", [scanned_pdf, scanned_tiff])
@pytest.mark.usefixtures("short_parts")
def test_each_part_goes_on_behind_the_one_before(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    whole = job(make(tmp_path / ("scan.pdf" if make is scanned_pdf else "scan.tiff")))
    extract = read_file(whole)
    read = list(extract.sections)
    while extract.left:
        assert extract.pages == len(WORDS)
        extract = read_file(replace(whole, pages=extract.left))
        assert extract.sections
        read += extract.sections
    assert [section.page for section in read] == [1, 2, 3, 4, 5]
    assert all(word in section.text for word, section in zip(WORDS, read, strict=True))


def test_with_enough_time_there_is_one_part(tmp_path: Path) -> None:
    extract = read_file(job(scanned_pdf(tmp_path / "scan.pdf", WORDS[:3])))
    assert not extract.left
    assert len(extract.sections) == 3


def slow_reader(job: Job) -> Extract:
    """Pages are parted by form feeds, and two at a time are read; those that say "boom" take the reader down."""
    pages = job.path.read_text(encoding="utf-8").split("\f")
    numbers = job.pages or tuple(range(1, len(pages) + 1))
    now = [number for number in numbers[: parts.AT_ONCE] if pages[number - 1]]
    if any("boom" in pages[number - 1] for number in now):
        raise DamagedFileError("It stopped the program that reads files.")
    sections = tuple(Section(pages[number - 1], page=number, confidence=90.0) for number in now)
    return Extract(Format.PDF, sections, len(pages), left=numbers[parts.AT_ONCE :])


@pytest.fixture
def open_memory(tmp_path: Path, embedder_folder: Path) -> Iterator[Callable[[], Memory]]:
    opened: list[Memory] = []

    def start() -> Memory:
        for memory in opened:
            memory.close()
        opened[:] = [Memory.open(tmp_path / "memory", embedder_folder, threads=1, read=slow_reader)]
        return opened[0]

    yield start
    opened[0].close()


def book(file: Path, *pages: str) -> Path:
    file.write_text("\f".join(pages), encoding="utf-8")
    return file


def finish(memory: Memory, file: Path) -> IngestReport:
    said: tuple[str, ...] = ()
    while (report := ingest(memory, file)).left:
        said += report.warnings
    return replace(report, warnings=said + report.warnings)


def test_a_long_scan_is_found_as_far_as_it_was_read_and_goes_on_after_a_restart(
    tmp_path: Path, open_memory: Callable[[], Memory]
) -> None:
    file = book(tmp_path / "book.scan", *(f"The {word} is mentioned here." for word in WORDS))
    memory = open_memory()
    report = ingest(memory, file)
    assert report.left == len(WORDS) - parts.AT_ONCE
    assert "harbour" in memory.search("harbour", 1)[0].passage.text
    assert not any("gardener" in hit.passage.text for hit in memory.search("gardener", 5))

    memory = open_memory()
    report = finish(memory, file)
    assert report.passages == len(WORDS)
    for number, word in enumerate(WORDS, start=1):
        found = memory.search(word, 1)[0].passage
        assert word in found.text
        assert (found.place.page, found.ordinal) == (number, number - 1)
    assert ingest(memory, file).already_known
    memory.forget(report.source.id)
    assert ingest(memory, file).left  # from its start again


def test_one_part_more_or_less(tmp_path: Path, open_memory: Callable[[], Memory]) -> None:
    memory = open_memory()
    deadly = book(tmp_path / "deadly.scan", *"abc", "boom", *"def", "The gardener comes last.")
    report = finish(memory, deadly)
    assert len(report.warnings) == 1
    assert "4" in report.warnings[0]
    assert "left out" in report.warnings[0]
    assert "gardener" in memory.search("gardener", 1)[0].passage.text

    stopped = book(tmp_path / "stopped.scan", "The harbour.", *"xyz", "The end.")
    left = ingest(memory, stopped).left
    with pytest.raises(IngestCancelledError):
        memory.ingest(stopped, stopped.name, str(stopped), lambda progress: None, lambda: True)
    assert "harbour" in memory.search("harbour", 1)[0].passage.text
    assert ingest(memory, stopped).left == max(0, left - parts.AT_ONCE)

    late = book(tmp_path / "late.scan", "", "", "", "The telescope.")
    assert finish(memory, late).passages == 1
    assert memory.search("telescope", 1)[0].passage.place.page == 4
    blank = book(tmp_path / "blank.scan", "", "", "")
    with pytest.raises(NoTextError, match=r"blank\.scan"):
        finish(memory, blank)
    assert "blank.scan" not in [row.source.title for row in memory.documents()]
