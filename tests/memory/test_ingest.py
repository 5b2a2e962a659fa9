from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from memory import Memory, chunking
from memory.ingest.encoding import decode
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.readers import read_file
from memory.types import IngestCancelledError, IngestError, Progress


def picture(text: str, size: tuple[int, int] = (1400, 320), ground: str = "white", ink: str = "black") -> Image.Image:
    image = Image.new("RGB", size, ground)
    ImageDraw.Draw(image).multiline_text((40, 60), text, fill=ink, font=ImageFont.load_default(size=44))
    return image


def make_pdf(file: Path, *pages: str | Image.Image, **save: object) -> Path:
    document = pymupdf.open()
    for content in pages:
        page = document.new_page()
        if isinstance(content, str):
            page.insert_textbox(pymupdf.Rect(60, 60, 540, 780), content, fontsize=12)
        else:
            scan = file.with_suffix(".scan.png")
            content.save(scan)
            page.insert_image(pymupdf.Rect(20, 20, 575, 200), filename=str(scan))
    document.save(file, **save)
    return file


def read(path: Path, name: str | None = None, languages: str = "eng") -> Extract:
    return read_file(Job(path, name or path.name, languages, lambda progress: None, lambda: False))


def refusal(path: Path, name: str | None = None) -> str:
    with pytest.raises(IngestError) as caught:
        read(path, name)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert (name or path.name) in sentence
    return sentence


def test_a_pdf_keeps_its_pages_and_reads_the_scanned_one(tmp_path: Path) -> None:
    file = make_pdf(tmp_path / "mixed.pdf", "The ferry leaves at noon.", picture("The harbour code is 4471"))
    extract = read(file)
    assert (extract.format, extract.pages, extract.warnings) == (Format.PDF, 2, ())
    first, second = extract.sections
    assert (first.page, second.page) == (1, 2)
    assert "ferry leaves at noon" in first.text
    assert "4471" in second.text


def test_blank_pages_are_no_warning_and_drawings_are(tmp_path: Path) -> None:
    file = make_pdf(tmp_path / "blank.pdf", "Some text.", "")
    with pymupdf.open(file) as document:
        page = document.new_page()
        page.draw_circle((300, 300), 120, fill=(0.4, 0.4, 0.4))
        document.saveIncr()
    extract = read(file)
    assert [section.page for section in extract.sections] == [1]
    assert len(extract.warnings) == 1
    assert "Page 3" in extract.warnings[0]


def test_an_encrypted_pdf(tmp_path: Path) -> None:
    file = make_pdf(
        tmp_path / "secret.pdf", "Hidden.", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="x", owner_pw="y"
    )
    assert "encrypted" in refusal(file)


@pytest.mark.parametrize("content", [b"%PDF-1.7\nnot really", b"not a pdf at all, just words"])
def test_a_corrupt_pdf(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.pdf"
    file.write_bytes(content)
    assert "damaged" in refusal(file)


def test_empty_missing_folder_binary_office(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "empty" in refusal(empty)
    blank = tmp_path / "blank.txt"
    blank.write_text(" \n\t\n")
    assert "white space" in refusal(blank)
    assert "not found" in refusal(tmp_path / "gone.txt")
    assert "folder" in refusal(tmp_path, tmp_path.name)
    binary = tmp_path / "data.bin"
    binary.write_bytes(bytes(range(256)) * 8)
    assert "binary" in refusal(binary)
    office = tmp_path / "letter.docx"
    office.write_bytes(b"PK\x03\x04" + bytes(100))
    assert "damaged" in refusal(office)


def test_a_file_too_large(tmp_path: Path) -> None:
    file = tmp_path / "huge.txt"
    with file.open("wb") as out:
        out.truncate(201 * 2**20)
    assert "too large" in refusal(file)


def test_the_name_a_person_gave_counts_not_the_staged_one(tmp_path: Path) -> None:
    staged = tmp_path / "0af3"
    staged.write_text("# Title\n\nText.\n")
    assert read(staged, "notes.md").format is Format.MARKDOWN
    assert read(staged, "notes.py").format is Format.CODE
    assert read(staged, "notes").format is Format.TEXT


def test_content_counts_more_than_the_name(tmp_path: Path) -> None:
    file = make_pdf(tmp_path / "x.pdf", "Words.").rename(tmp_path / "x.txt")
    assert read(file).format is Format.PDF


@given(st.text(min_size=1, max_size=80).filter(lambda text: text.strip() and "\0" not in text))
@settings(max_examples=60, deadline=None)
def test_marked_encodings_are_read_exactly(text: str) -> None:
    wanted = text.replace("\r\n", "\n").replace("\r", "\n")
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        assert decode(text.encode(encoding), "f") == wanted


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-16-le", "Plain words without a mark. " * 20),
        ("gb18030", "我们昨天讨论了数据库的索引结构，并决定在下个星期测试缓存的性能。" * 8),
        ("cp1252", "Le garçon a mangé une crêpe à l’école près de la forêt. " * 8),
    ],
)
def test_unmarked_encodings(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding), "f") == text


def test_a_screenshot_on_dark_ground(tmp_path: Path) -> None:
    file = tmp_path / "shot.png"
    picture("Disk quota exceeded on DATA3", (700, 120), "#202020", "#f0f0f0").save(file)
    extract = read(file)
    assert extract.format is Format.IMAGE
    assert "quota exceeded" in extract.sections[0].text


def test_a_photograph_turned_by_its_exif_mark(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    turned = picture("The gate opens at seven").rotate(90, expand=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(file, exif=exif)
    assert "gate opens" in read(file).sections[0].text


def test_a_picture_without_text(tmp_path: Path) -> None:
    file = tmp_path / "grey.png"
    Image.new("RGB", (300, 300), "grey").save(file)
    assert "No text" in refusal(file)


def test_a_damaged_picture(tmp_path: Path) -> None:
    file = tmp_path / "cut.png"
    picture("Words").save(file)
    file.write_bytes(file.read_bytes()[:200])
    assert "damaged" in refusal(file)


def test_a_picture_too_large_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "bomb.png"
    Image.new("1", (12_000, 12_000)).save(file)
    assert "megapixels" in refusal(file)


def test_progress_and_stop(tmp_path: Path) -> None:
    file = make_pdf(tmp_path / "three.pdf", "One.", "Two.", "Three.")
    steps: list[Progress] = []

    def stop_on_page_two() -> bool:
        return bool(steps) and steps[-1].done >= 1

    with pytest.raises(IngestCancelledError):
        read_file(Job(file, "three.pdf", "eng", steps.append, stop_on_page_two))
    assert [(step.phase, step.done, step.total) for step in steps] == [("read", 0, 3), ("read", 1, 3)]


def test_the_cutting_of_one_long_section_is_stopped_in_its_midst(
    tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "_STRETCH", 500)
    file = tmp_path / "long.txt"
    file.write_text("The pump stands in the cellar. " * 400)
    heard: list[Progress] = []
    with pytest.raises(IngestCancelledError):
        memory.ingest(
            file, file.name, str(file), heard.append, lambda: sum(progress.phase == "store" for progress in heard) > 5
        )
    assert [progress.phase for progress in heard].count("store") == 6
    assert memory.documents() == []
