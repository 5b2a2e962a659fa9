"""Files are read in a process of their own: what becomes of it costs the file only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.host.apart import ApartReader
from memory.ingest.extract import Job
from memory.ingest.readers import read_file
from memory.types import DamagedFileError, IngestCancelledError, NeedsPasswordError, NoTextError, Progress
from tests.memory.ingest import made


def job(path: Path, cancelled: Callable[[], bool] = lambda: False, password: str = "") -> Job:
    return Job(path, path.name, "eng", lambda progress: None, cancelled, password)


@pytest.fixture
def bad() -> Iterator[ApartReader]:
    reader = ApartReader(module="bad_reader")
    yield reader
    reader.close()


def pid(reader: ApartReader) -> int:
    return int(reader(job(Path("tell"))).sections[0].text)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_reads_what_the_reader_in_this_process_reads(tmp_path: Path) -> None:
    reader = ApartReader()
    steps: list[Progress] = []
    try:
        for name, make in made.MAKERS.items():
            asked = job(make(tmp_path / name))
            heard = Job(asked.path, asked.name, "eng", steps.append, asked.cancelled)
            assert reader(heard) == read_file(asked)
    finally:
        reader.close()
    assert Progress("read", 0, 2) in steps


def test_the_password_reaches_it(tmp_path: Path) -> None:
    import pymupdf

    with pymupdf.open() as document:
        document.new_page().insert_text((60, 60), "The safe is behind the stove.")
        document.save(tmp_path / "a.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="open", owner_pw="x")
    reader = ApartReader()
    try:
        with pytest.raises(NeedsPasswordError):
            reader(job(tmp_path / "a.pdf"))
        assert "stove" in reader(job(tmp_path / "a.pdf", password="open")).sections[0].text
    finally:
        reader.close()


def test_a_file_that_kills_the_reader_costs_itself_only(bad: ApartReader) -> None:
    before = pid(bad)
    with pytest.raises(DamagedFileError, match="die stopped the program that reads files"):
        bad(job(Path("die")))
    assert pid(bad) != before


def test_a_reader_that_falls_silent_is_killed() -> None:
    bad = ApartReader(silent_seconds=4, module="bad_reader")
    before = pid(bad)
    with pytest.raises(DamagedFileError, match="hang was given up"):
        bad(job(Path("hang")))
    assert not is_alive(before)


def test_stopping_kills_a_reader_that_does_not_listen() -> None:
    bad = ApartReader(module="bad_reader")
    asked: list[int] = []

    def after_a_while() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(IngestCancelledError):
        bad(job(Path("hang"), after_a_while))
    bad.close()


def test_refusals_pass_as_they_are_and_faults_as_one_sentence(bad: ApartReader) -> None:
    before = pid(bad)
    with pytest.raises(NoTextError, match=r"^refuse has no text\.$"):
        bad(job(Path("refuse")))
    with pytest.raises(DamagedFileError, match="stumble could not be read"):
        bad(job(Path("stumble")))
    assert pid(bad) == before


def test_closing_ends_it(bad: ApartReader) -> None:
    before = pid(bad)
    bad.close()
    assert not is_alive(before)
    assert pid(bad) != before


def test_what_it_writes_while_it_reads_is_private_and_goes_with_it(tmp_path: Path) -> None:
    scratch = tmp_path / "reader"
    scratch.mkdir()
    (scratch / "left.ppm").write_bytes(b"a page of one that was killed")
    reader = ApartReader(scratch=scratch)
    try:
        reader(job(made.MAKERS["a.html"](tmp_path / "a.html")))
        assert not (scratch / "left.ppm").exists()
        assert scratch.stat().st_mode & 0o777 == 0o700
        assert reader._child is not None
        process = Path("/proc", str(reader._child.process.pid))
        assert f"TMPDIR={scratch}".encode() in (process / "environ").read_bytes().split(b"\0")
        assert "Umask:\t0077" in (process / "status").read_text().splitlines()
        (scratch / "page.ppm").write_bytes(b"a page")
    finally:
        reader.close()
    assert not scratch.exists()
