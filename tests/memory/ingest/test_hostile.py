"""Files made to do harm, and files cut off anywhere: each ends in a report or in one sentence, and soon."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pymupdf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.types import DamagedFileError, IngestError, NoTextError, UnsupportedFileError
from tests.memory.ingest import made
from tests.memory.ingest.reading import read, refusal, whole


def ends_well(path: Path, name: str) -> None:
    """A report, or an IngestError of one sentence; anything else fails the test."""
    try:
        read(path, name)
    except IngestError as error:
        sentence = str(error)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert name in sentence


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("good")
    return {name: make(folder / name).read_bytes() for name, make in made.MAKERS.items()}


@pytest.mark.parametrize("name", made.MAKERS)
def test_any_prefix_of_a_good_file_ends_well(tmp_path: Path, good: dict[str, bytes], name: str) -> None:
    data = good[name]
    file = tmp_path / name
    at = random.Random(7)
    for length in sorted({0, 1, 2, 5, len(data) - 1, *(at.randrange(len(data)) for _ in range(12))}):
        file.write_bytes(data[:length])
        ends_well(file, name)


@pytest.mark.parametrize("name", made.MAKERS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_a_good_file_with_wrong_bytes_ends_well(tmp_path: Path, good: dict[str, bytes], name: str, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(good[name])
    for _ in range(chance.randint(1, 12)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    file = tmp_path / name
    file.write_bytes(data)
    ends_well(file, name)


@pytest.mark.parametrize("name", ["a.docx", "a.odt", "a.epub"])
def test_wrong_bytes_inside_the_parts_end_well(tmp_path: Path, good: dict[str, bytes], name: str) -> None:
    chance = random.Random(11)
    with zipfile.ZipFile(io.BytesIO(good[name])) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    for part, content in parts.items():
        for broken in (b"", content[: len(content) // 2], bytes(reversed(content)), b"\xff" * 40):
            ends_well(made.packed(tmp_path / name, parts | {part: broken}), name)
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 0x55
        ends_well(made.packed(tmp_path / name, parts | {part: bytes(changed)}), name)
        ends_well(made.packed(tmp_path / name, {key: value for key, value in parts.items() if key != part}), name)


def test_a_zip_bomb_in_a_document_is_not_unpacked(tmp_path: Path) -> None:
    bomb = made.docx(tmp_path / "bomb.docx", made.paragraph(" " * 60_000_000))
    assert bomb.stat().st_size < 200_000
    assert "unpack to" in refusal(bomb, UnsupportedFileError)


def test_a_zip_that_lies_about_its_size(tmp_path: Path) -> None:
    file = made.docx(tmp_path / "liar.docx")
    data = bytearray(file.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    file.write_bytes(data)
    ends_well(file, file.name)


def test_xml_that_multiplies_itself(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    laughs = f'<!DOCTYPE w [<!ENTITY e0 "ha">{levels}]>'
    ends_well(made.docx(tmp_path / "laugh.docx", made.paragraph("&e9;"), laughs), "laugh.docx")
    with zipfile.ZipFile(made.odt(tmp_path / "a.odt")) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    parts["content.xml"] = parts["content.xml"].replace("?>", f"?>{laughs}", 1).replace("4471", "&e9;")
    ends_well(made.packed(tmp_path / "laugh.odt", parts), "laugh.odt")


def test_xml_that_asks_for_other_files_gets_none(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the launch code")
    asks = f'<!DOCTYPE w [<!ENTITY s SYSTEM "{secret.as_uri()}">]>'
    for make, mark in ((made.odt, "4471"), (made.epub, "mast")):
        with zipfile.ZipFile(make(tmp_path / "plain")) as archive:
            parts = {name: archive.read(name).decode() for name in archive.namelist()}
        for name in parts:
            parts[name] = parts[name].replace("?>", f"?>{asks}", 1).replace(mark, "&s;")
        made.packed(tmp_path / "asks", parts)
        try:
            assert "launch code" not in whole(read(tmp_path / "asks"))
        except IngestError:
            continue


def test_html_nested_without_end(tmp_path: Path) -> None:
    for opening, closing in (("<div>", "</div>"), ("<ul><li>", ""), ("<table><tr><td>", ""), ("<b>", "</b>")):
        page = tmp_path / "deep.html"
        page.write_text(f"<html><body>{opening * 4000}The bottom.{closing * 4000}</body></html>")
        ends_well(page, page.name)


def test_a_table_that_claims_a_billion_cells(tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text("<table><tr><td rowspan=1000000000 colspan=1000000000>x</td></tr><tr><td>y</td></tr></table>")
    assert "x" in whole(read(page))
    with zipfile.ZipFile(made.odt(tmp_path / "a.odt")) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    wide = '<table:table-cell table:number-columns-repeated="1000000000">'
    parts["content.xml"] = parts["content.xml"].replace("<table:table-cell>", wide, 1)
    assert "ferry" in whole(read(made.packed(tmp_path / "wide.odt", parts)))


def test_a_page_of_35_000_pixels_a_side_is_not_drawn_as_it_is(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page(width=14_000, height=14_000)
        page.insert_text((100, 200), "A very large page.", fontsize=40)
        page.insert_text((100, 9000), "WHITE", fontsize=40, color=(1, 1, 1))
        document.save(tmp_path / "large.pdf")
    assert whole(read(tmp_path / "large.pdf")) == "A very large page."
    image = tmp_path / "picture.png"
    made.png_header(image, 35_000, 35_000)
    assert "megapixels" in refusal(image, UnsupportedFileError)


def test_a_page_of_a_hundred_thousand_words(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page(width=3000, height=6000)
        for row in range(500):
            page.insert_text((10, 12 + 11 * row), " ".join(f"w{row}x{n}" for n in range(40)), fontsize=7)
        document.save(tmp_path / "full.pdf")
    assert "w499x39" in whole(read(tmp_path / "full.pdf"))


def test_an_outline_that_leads_nowhere(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page().insert_text((60, 60), "Words.")
        document.set_toc([[1, "Nowhere", -1], [2, "", 1], [1, "\u202etxet", 1]])
        document.save(tmp_path / "a.pdf")
    assert "Words." in whole(read(tmp_path / "a.pdf"))


def test_json_and_csv_and_text_without_measure(tmp_path: Path) -> None:
    book = tmp_path / "deep.ipynb"
    book.write_text('{"cells":' + "[" * 200_000)
    refusal(book, DamagedFileError)
    sheet = tmp_path / "quote.csv"
    sheet.write_text('a,b\n"' + "x\n" * 50_000)
    ends_well(sheet, sheet.name)
    blank = tmp_path / "unseen.txt"
    blank.write_text("\u200b" * 5000, encoding="utf-8")
    refusal(blank, NoTextError)
