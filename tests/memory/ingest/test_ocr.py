"""Pictures made on the spot: turned, skewed, in columns, in Chinese, without Tesseract, too large, too slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pymupdf
import pytest
from PIL import Image, ImageDraw, ImageFont

from memory import Memory
from memory.ingest import ocr, rapid, tesseract
from memory.ingest.extract import Extract
from memory.ingest.layout import Box, in_reading_order
from memory.ingest.reading import OcrText
from memory.ingest.straighten import skew
from memory.ingest.textlayer import usable
from memory.types import IngestError, IngestReport
from tests.bench.ocr import error_rate
from tests.memory.ingest.reading import read

LETTER = (
    "The harbour master keeps a ledger of every boat that\n"
    "enters the bay, with its name, its flag and the hour.\n"
    "In winter the ferry leaves at noon, and again at four.\n"
    "Whoever misses the last one sleeps at the lighthouse,\n"
    "where the keeper has room for seven guests and a dog.\n"
    "The key hangs behind the clock in the narrow hallway."
)


def page(text: str, size: tuple[int, int] = (1700, 900), at: tuple[int, int] = (120, 120)) -> Image.Image:
    image = Image.new("L", size, "white")
    ImageDraw.Draw(image).multiline_text(at, text, fill="black", font=ImageFont.load_default(size=44), spacing=24)
    return image


def chinese(text: str, file: Path) -> Path:
    """A picture in the CJK font that PyMuPDF carries."""
    document = pymupdf.open()
    sheet = document.new_page(width=420, height=200)
    sheet.insert_textbox(pymupdf.Rect(30, 30, 400, 180), text, fontname="china-s", fontsize=18)
    sheet.get_pixmap(dpi=150).save(file)
    return file


def saved(picture: Image.Image, file: Path) -> Path:
    picture.save(file)
    return file


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr("memory.ingest.tesseract.PROGRAM", str(tmp_path / "nothing-here"))
    tesseract.usable_languages.cache_clear()
    yield
    tesseract.usable_languages.cache_clear()


def sure(extract: Extract) -> float:
    (section,) = extract.sections
    assert section.confidence is not None
    return section.confidence


@pytest.mark.parametrize("degrees", [0, 90, 180, -7, *(pytest.param(d, marks=pytest.mark.slow) for d in (4, 176, 270))])
def test_a_page_is_read_however_it_lies(tmp_path: Path, degrees: int) -> None:
    turned = page(LETTER).rotate(degrees, resample=Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    extract = read(saved(turned, tmp_path / "page.png"))
    assert error_rate(extract.sections[0].text, LETTER) < 1.0
    assert sure(extract) > 80


@pytest.mark.parametrize("degrees", [0.0, 2.0, -5.0, 11.0])
def test_the_skew_is_measured_to_a_quarter_degree(degrees: float) -> None:
    turned = page(LETTER).rotate(degrees, resample=Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert skew(turned) == pytest.approx(-degrees, abs=0.3)


def test_a_picture_without_lines_has_no_skew() -> None:
    assert skew(Image.new("L", (300, 200), "white")) == 0.0
    assert skew(Image.new("L", (3, 3), "white")) == 0.0


@pytest.mark.parametrize("degrees", [0, 180, *(pytest.param(d, marks=pytest.mark.slow) for d in (90, 270))])
@pytest.mark.usefixtures("no_tesseract")
def test_without_tesseract_the_other_reader_reads_however_it_lies(tmp_path: Path, degrees: int) -> None:
    text = "\n".join(LETTER.split("\n")[:3])
    extract = read(saved(page(text, (1400, 440)).rotate(degrees, expand=True), tmp_path / "page.png"))
    assert error_rate(extract.sections[0].text, text) < 2.0
    assert sure(extract) > 80


@pytest.mark.usefixtures("no_tesseract")
def test_without_any_reader_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ocr.OcrError("RapidOCR's models are not in its package: reinstall aios-chat.")

    monkeypatch.setattr(rapid, "_engine", broken)
    scan = saved(page("Words"), tmp_path / "scan.png")
    with pytest.raises(IngestError, match=r"scan.png was not read.*apt-get install tesseract-ocr"):
        read(scan)
    document = pymupdf.open()
    document.new_page().insert_text((60, 60), "Readable text here.")
    document.new_page().insert_image(pymupdf.Rect(0, 0, 590, 800), filename=str(scan))
    document.save(tmp_path / "mixed.pdf")
    extract = read(tmp_path / "mixed.pdf")
    assert [section.page for section in extract.sections] == [1]
    assert "Page 2" in extract.warnings[0]
    assert "apt-get install tesseract-ocr" in extract.warnings[0]


def test_a_language_without_data_leaves_the_other_reader(tmp_path: Path) -> None:
    assert "apt-get install tesseract-ocr-xyz" in getattr(tesseract.usable_languages("xyz"), "sentence", "")
    extract = read(saved(page("The gate opens at seven"), tmp_path / "scan.png"), languages="xyz")
    assert "gate opens at seven" in extract.sections[0].text


@pytest.mark.parametrize("languages", ["eng", pytest.param("eng+chi_sim", marks=pytest.mark.slow)])
def test_chinese_is_read_whatever_the_languages_are(tmp_path: Path, languages: str) -> None:
    text = "会议定于下周三上午九点在二楼举行，请各位准时参加。"
    extract = read(chinese(text, tmp_path / "notice.png"), languages)
    got = "".join(extract.sections[0].text.split()).replace(",", "，")
    assert error_rate(got, text) < 8.0
    assert sure(extract) > 80


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    right = (
        "Timetable of the island bus:\nfrom the quay it leaves at\nseven, nine and eleven, and\nit returns by night."
    )
    sheet = page(LETTER, (2900, 900))
    ImageDraw.Draw(sheet).multiline_text(
        (1900, 120), right, fill="black", font=ImageFont.load_default(size=44), spacing=24
    )
    text = read(saved(sheet, tmp_path / "columns.png")).sections[0].text
    assert error_rate(text, f"{LETTER} {right}") < 2.0


def test_a_page_surely_on_its_side_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_once = tesseract.recognise
    sizes: list[tuple[int, int]] = []

    def counted(picture: Image.Image, languages: tuple[str, ...], seconds: float) -> OcrText:
        sizes.append(picture.size)
        return read_once(picture, languages, seconds)

    monkeypatch.setattr(tesseract, "recognise", counted)
    extract = read(saved(page(LETTER).rotate(90, expand=True), tmp_path / "page.png"))
    assert sizes == [(1700, 900)]
    assert error_rate(extract.sections[0].text, LETTER) < 1.0


def boxes(*rows: tuple[float, float, float, str]) -> list[Box]:
    return [Box(left, top, right, top + 20, text) for left, top, right, text in rows]


def test_lines_found_one_by_one_come_in_reading_order() -> None:
    found = boxes(
        (0, 0, 620, "Title across"),
        (0, 60, 300, "left one"),
        (0, 84, 290, "left two"),
        (330, 61, 620, "right one"),
        (330, 85, 600, "right two"),
        (0, 150, 600, "Foot"),
    )
    assert in_reading_order(found[::-1]).split("\n") == [
        *("Title across", "", "left one", "left two", "", "right one", "right two", "", "Foot", "")
    ]


def test_a_table_keeps_its_rows_and_vertical_writing_runs_from_the_right() -> None:
    table = boxes((0, 0, 60, "Item"), (200, 2, 260, "Price"), (0, 24, 60, "Tea"), (200, 25, 240, "3"))
    assert in_reading_order(table) == "Item Price\nTea 3\n"
    columns = [Box(x, 0, x + 20, 200, text) for x, text in ((0, "third"), (30, "second"), (60, "first"))]
    assert in_reading_order(columns) == "first\nsecond\nthird\n"


def test_it_gives_up_in_time_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "SECONDS", 0.05)
    with pytest.raises(IngestError, match="gave up"):
        read(saved(page(LETTER), tmp_path / "page.png"))


def test_a_large_picture_is_scaled_down_and_the_report_says_so(tmp_path: Path) -> None:
    large = page("The gate opens at seven", (900, 250)).resize((9000, 2500))
    extract = read(saved(large, tmp_path / "poster.png"))
    assert "gate opens at seven" in extract.sections[0].text
    assert "scaled down" in extract.warnings[0]


def test_a_page_larger_than_the_budget_is_read_coarsely_and_the_report_says_so(tmp_path: Path) -> None:
    document = pymupdf.open()
    sheet = document.new_page(width=2400, height=2400)
    sheet.insert_image(sheet.rect, filename=str(saved(page("The gate opens at seven", (900, 900)), tmp_path / "p.png")))
    document.save(tmp_path / "wall.pdf")
    extract = read(tmp_path / "wall.pdf")
    assert "gate opens at seven" in extract.sections[0].text
    assert "small print" in extract.warnings[0]


GARBAGE: list[Callable[[], str]] = [
    lambda: "\ufffd\ufffd\ufffd and \ufffd\ufffd",
    lambda: "\ue001\ue002\ue003\ue004 a",
    lambda: "\x19\x12\n",
    lambda: "(cid:12)(cid:45)(cid:7) (cid:9)(cid:88)",
    lambda: "/g12/g45/g7/g99 /g12",
    lambda: "glyph<c=3,font=/ABCDEF+Arial>glyph<c=72,font=/ABCDEF+Arial>",
    lambda: '"7+%-\n',
    lambda: "".join(chr(ord(c) - 29) if c.isalpha() else c for c in LETTER),
    lambda: " \n\t",
]


@pytest.mark.parametrize("make", GARBAGE)
def test_a_text_layer_that_is_no_text_is_told(make: Callable[[], str]) -> None:
    assert not usable(make())


@pytest.mark.parametrize(
    "text",
    [
        LETTER,
        LETTER.upper(),
        "我们昨天讨论了数据库的索引结构。",
        "حَبيبي هذا نص عربي",
        "Strč prst skrz krk, a vlk zmrzl. Prší, hrom bije, a smrt je blízko; krást se nesmí nikdy.",
        "Total 1,204.50 EUR ......................... 17\n" * 4,
        "def f(x): return x ** 2  # squares\n" * 3,
        "Kwartaal Q1 Q2 Q3 Q4\n12 13 14 15\n",
    ],
)
def test_a_text_layer_that_is_text_is_kept(text: str) -> None:
    assert usable(text)


def test_a_page_whose_layer_is_no_text_is_read_as_a_picture(tmp_path: Path) -> None:
    document = pymupdf.open()
    sheet = document.new_page()
    sheet.insert_image(pymupdf.Rect(20, 20, 575, 320), filename=str(saved(page(LETTER), tmp_path / "p.png")))
    shifted = "".join(chr(ord(c) - 29) if c.isalpha() else c for c in LETTER)
    sheet.insert_textbox(pymupdf.Rect(20, 20, 575, 320), shifted, render_mode=3)
    document.save(tmp_path / "layer.pdf")
    extract = read(tmp_path / "layer.pdf")
    assert error_rate(extract.sections[0].text, LETTER) < 3.0


def test_how_sure_the_reader_was_is_kept_and_shown(
    memory: Memory, ingest: Callable[[Path], IngestReport], tmp_path: Path
) -> None:
    report = ingest(saved(page("The gate opens at seven"), tmp_path / "gate.png"))
    (hit,) = memory.search("gate opens")
    assert report.confidence is not None
    assert hit.passage.confidence == pytest.approx(report.confidence)
    note = tmp_path / "note.txt"
    note.write_text("The gate closes at nine.")
    assert ingest(note).confidence is None
    assert {hit.passage.confidence is None for hit in memory.search("gate")} == {True, False}


def test_a_picture_hard_to_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(page("The gate opens at seven"), tmp_path / "gate.png")
    monkeypatch.setattr("memory.ingest.image.read_picture", lambda *_: OcrText("The qate opens", 41.0))
    assert read(file).warnings == ("gate.png was hard to read (41 % sure): look at it before you rely on the text.",)
