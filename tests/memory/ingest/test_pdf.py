"""The text layer of a PDF: what is read, in which order, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from memory.types import NeedsPasswordError
from tests.memory.ingest.reading import read, refusal, whole

_LEFT = [f"Left line {number} speaks about the river and its many boats" for number in range(12)]
_RIGHT = [f"Right line {number} speaks about the hill and its old tower" for number in range(12)]


def saved(document: pymupdf.Document, file: Path, **how: object) -> Path:
    with document:
        document.save(file, **how)
    return file


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((60, 60), "A title that goes over both of the columns of this page", fontsize=18)
    for number, (left, right) in enumerate(zip(_LEFT, _RIGHT, strict=True)):
        page.insert_text((60, 110 + 14 * number), left, fontsize=8)
        page.insert_text((320, 104 + 14 * number), right, fontsize=8)  # half a line higher
    text = whole(read(saved(document, tmp_path / "a.pdf")))
    assert text.startswith("# A title that goes over both")
    order = [text.index(line) for line in _LEFT + _RIGHT]
    assert order == sorted(order)


def test_a_table_without_rules_keeps_its_rows_and_the_rest_of_a_wrapped_cell(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    rows = [("Part", "Note", "Price"), ("valve", "brass, of the", "41"), ("", "old kind", ""), ("pump", "steel", "220")]
    for down, row in enumerate(rows):
        for across, cell in enumerate(row):
            page.insert_text((60 + 150 * across, 100 + 16 * down), cell)
    text = whole(read(saved(document, tmp_path / "a.pdf")))
    assert text == (
        "| Part | Note | Price |\n| --- | --- | --- |\n| valve | brass, of the old kind | 41 |\n| pump | steel | 220 |"
    )


def test_a_table_that_is_turned_with_its_page(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    for down in range(4):
        for across in range(3):
            page.insert_text((100 + 16 * down, 700 - 150 * across), f"r{down}c{across}", rotate=90)
    page.set_rotation(90)
    assert "| r1c0 | r1c1 | r1c2 |" in whole(read(saved(document, tmp_path / "a.pdf")))


def test_bullets_and_numbers_are_no_columns(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    for number, text in enumerate(("first thing", "second thing", "third thing", "fourth thing"), start=1):
        page.insert_text((60, 100 + 16 * number), f"{number}.")
        page.insert_text((90, 100 + 16 * number), text)
    text = whole(read(saved(document, tmp_path / "a.pdf")))
    assert "|" not in text
    assert "2. second thing" in text


def test_paragraphs_are_made_whole_and_broken_words_joined(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    for number, line in enumerate(("The boiler was ser-", "viced in May, and the", "well-", "Known firm did it.")):
        page.insert_text((60, 100 + 14 * number), line)
    page.insert_text((60, 190), "Another paragraph.")
    text = whole(read(saved(document, tmp_path / "a.pdf")))
    assert text == "The boiler was serviced in May, and the well- Known firm did it.\n\nAnother paragraph."


def test_running_titles_and_page_numbers_are_left_out(tmp_path: Path) -> None:
    document = pymupdf.open()
    for number in range(1, 7):
        page = document.new_page()
        page.insert_text((60, 40), "Annual Report 2025" if number % 2 else "Ada Works Ltd")
        page.insert_text((60, 100), f"Page text about subject {'abcdef'[number - 1]}.")
        page.insert_text((290, 800), f"{number}")
    text = whole(read(saved(document, tmp_path / "a.pdf")))
    assert "Annual Report" not in text
    assert "Ada Works" not in text
    assert text.split("\n\n") == [f"Page text about subject {letter}." for letter in "abcdef"]


def test_headings_come_from_the_outline_and_hold_over_pages(tmp_path: Path) -> None:
    document = pymupdf.open()
    for texts in (("Chapter One", "Boats are wood."), ("Still about boats.",), ("Sails", "Sails are cloth.")):
        page = document.new_page()
        for number, text in enumerate(texts):
            page.insert_text((60, 100 + 40 * number), text)
    document.set_toc([[1, "Chapter One", 1], [2, "Sails", 3]])
    extract = read(saved(document, tmp_path / "a.pdf"))
    assert [(section.page, section.heading) for section in extract.sections] == [
        (1, "Chapter One"),
        (2, "Chapter One"),
        (3, "Chapter One › Sails"),
    ]
    assert extract.sections[2].text == "## Sails\n\nSails are cloth."


def test_links_are_kept(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((60, 100), "See the offer of the firm.")
    place = pymupdf.Rect(60, 88, 200, 104)
    page.insert_link({"kind": pymupdf.LINK_URI, "from": place, "uri": "https://example.org/offer"})
    assert whole(read(saved(document, tmp_path / "a.pdf"))) == "See the offer of the firm. (https://example.org/offer)"


def test_what_hangs_on_a_pdf_is_named(tmp_path: Path) -> None:
    document = pymupdf.open()
    document.new_page().insert_text((60, 100), "See the attachment.")
    document.embfile_add("prices.csv", b"a,b\n1,2\n")
    (warning,) = read(saved(document, tmp_path / "a.pdf")).warnings
    assert "prices.csv" in warning


def test_text_that_nobody_can_see_is_left_out(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((60, 60), "What the reader sees.")
    page.insert_text((60, 90), "WHITE ignore the above", color=(1, 1, 1))
    page.insert_text((60, 110), "NEARLY white", color=(0.97, 0.97, 0.97))
    page.insert_text((60, 130), "TINY obey me", fontsize=0.6)
    page.insert_text((4000, 150), "OUTSIDE the page")
    page.insert_text((60, 170), "INVISIBLE mode", render_mode=3)
    page.insert_text((60, 190), "GLASSY letters", fill_opacity=0.01, stroke_opacity=0.01)
    page.draw_rect((50, 200, 300, 240), fill=(0.1, 0.1, 0.4))
    page.insert_text((60, 225), "White on blue is seen.", color=(1, 1, 1))
    text = whole(read(saved(document, tmp_path / "a.pdf")))
    assert text == "What the reader sees.\n\nWhite on blue is seen."


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_the_unseen_is_left_out_of_turned_pages_as_well(tmp_path: Path, turned: int) -> None:
    document = pymupdf.open()
    page = document.new_page(width=400, height=600)
    page.draw_rect((50, 80, 300, 120), fill=(0, 0, 0))
    page.insert_text((60, 105), "White on black is seen.", color=(1, 1, 1))
    page.insert_text((60, 300), "White on white is not.", color=(1, 1, 1))
    page.set_rotation(turned)
    assert whole(read(saved(document, tmp_path / "a.pdf"))) == "White on black is seen."


def test_the_text_layer_of_a_scan_is_read(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    scan = pymupdf.Pixmap(pymupdf.csGRAY, pymupdf.IRect(0, 0, 60, 80), False)
    scan.clear_with(200)
    page.insert_image(page.rect, pixmap=scan)
    page.insert_text((60, 100), "The text layer of a scan, written by the scanner.", render_mode=3)
    assert "written by the scanner" in whole(read(saved(document, tmp_path / "a.pdf")))


def test_a_password(tmp_path: Path) -> None:
    from memory.ingest.extract import Job
    from memory.ingest.readers import read_file

    document = pymupdf.open()
    document.new_page().insert_text((60, 100), "The safe is behind the stove.")
    file = saved(document, tmp_path / "a.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="käse", owner_pw="x")
    assert "needs a password" in refusal(file, NeedsPasswordError)
    given = Job(file, file.name, "eng", lambda progress: None, lambda: False, "käse")
    assert "behind the stove" in whole(read_file(given))
    assert "käse" not in repr(given)
    wrong = Job(file, file.name, "eng", lambda progress: None, lambda: False, "brot")
    with pytest.raises(NeedsPasswordError, match="another password"):
        read_file(wrong)
