"""Mails as they come: blank texts beside full pages, wrong encodings, parts in parts."""

from __future__ import annotations

import base64
from email.message import EmailMessage
from pathlib import Path

import pytest

from memory.ingest import parts
from memory.ingest.extract import Extract, Format
from tests.memory.ingest import made
from tests.memory.ingest.reading import read, whole
from tests.memory.ingest.test_parts import scanned_pdf

_HEAD = b"From: ada@example.org\r\nSubject: Keys\r\nMIME-Version: 1.0\r\n"
_TEXT = "The spare key hangs in the shed."


def letter(folder: Path, content: bytes | EmailMessage) -> Extract:
    file = folder / "a.eml"
    file.write_bytes(content if isinstance(content, bytes) else content.as_bytes())
    return read(file)


def mail(subject: str = "Keys") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["Subject"] = "ada@example.org", subject
    return message


@pytest.mark.parametrize("plain", ["", "\n", " \n\t\n\u00a0"])
def test_a_page_beside_a_blank_text_is_the_letter(tmp_path: Path, plain: str) -> None:
    message = mail()
    message.set_content(plain)
    message.add_alternative(f"<p>{_TEXT}</p>", subtype="html")
    extract = letter(tmp_path, message)
    assert _TEXT in whole(extract)
    assert extract.warnings == ()


def test_the_same_letter_twice_is_read_once(tmp_path: Path) -> None:
    message = mail()
    message.set_content(_TEXT)
    message.add_alternative(f"<p>{_TEXT}</p>", subtype="html")
    message.add_attachment("Gate 9917\n", filename="gate.txt")
    extract = letter(tmp_path, message)
    assert whole(extract).count(_TEXT) == 1
    assert [section.heading for section in extract.sections] == ["Keys", "attachment gate.txt"]


@pytest.mark.parametrize("kind", ["plain", "html"])
@pytest.mark.parametrize(
    ("charset", "encoding"),
    [
        ("unknown-8bit", "cp1252"),
        ("x-user-defined", "utf-8"),
        ("", "cp1252"),
        ("us-ascii", "cp1252"),
        ("utf-8", "cp1252"),
        ("iso-8859-1", "cp1252"),
        ("koi8-r", "koi8-r"),
        ("gb2312", "gb18030"),
        ("hex", "utf-8"),
    ],
)
def test_a_letter_whatever_it_says_of_its_encoding(tmp_path: Path, charset: str, encoding: str, kind: str) -> None:
    said = {"koi8-r": "Ключ висит в сарае.", "gb18030": "钥匙在喆的棚子里。"}.get(
        encoding, "Der Schlüssel hängt „hinten“."
    )
    text = f"<p>{said}</p>" if kind == "html" else said
    given = f'; charset="{charset}"' if charset else ""
    data = _HEAD + f"Content-Type: text/{kind}{given}\r\n\r\n".encode() + text.encode(encoding)
    assert said in whole(letter(tmp_path, data))


@pytest.mark.parametrize("name", ["table.csv", "scan.pdf", "note.txt"])
def test_a_mail_that_is_nothing_but_its_attachment(tmp_path: Path, name: str) -> None:
    message = mail()
    if name == "scan.pdf":
        message.set_content(made.pdf(tmp_path / name).read_bytes(), "application", "pdf", filename=name)
    else:
        subtype = "csv" if name == "table.csv" else "plain"
        message.set_content("boat,berth\nferry,4\n", subtype, filename=name, disposition="attachment")
    extract = letter(tmp_path, message)
    assert "ferry" in whole(extract)
    assert any(name in section.heading for section in extract.sections)


@pytest.mark.parametrize("outer", ["mixed", "signed", "alternative", "related"])
def test_what_hangs_on_a_part_within_a_part(tmp_path: Path, outer: str) -> None:
    inner = EmailMessage()
    inner.set_content(f"<p>{_TEXT}</p>", subtype="html")
    inner.add_attachment("Gate 9917\n", filename="gate.txt")
    del inner["MIME-Version"]
    data = _HEAD + (
        f"Content-Type: multipart/{outer}; boundary=xyz\r\n\r\n--xyz\r\n".encode()
        + inner.as_bytes()
        + b"\r\n--xyz--\r\n"
    )
    extract = letter(tmp_path, data)
    assert _TEXT in extract.sections[0].text
    assert [section.text.strip() for section in extract.sections[1:]] == ["Gate 9917"]


def test_a_mail_without_the_line_between_its_parts(tmp_path: Path) -> None:
    assert _TEXT in whole(letter(tmp_path, _HEAD + b"Content-Type: multipart/mixed\r\n\r\n" + _TEXT.encode()))


@pytest.mark.parametrize(
    ("words", "encoding"),
    [("Grüße aus Köln", "cp1252"), ("Grüße aus Köln", "utf-8"), ("Ключ висит в сарае у реки", "koi8-r")],
)
def test_headers_of_bare_bytes(tmp_path: Path, words: str, encoding: str) -> None:
    kind = f"Content-Type: text/plain; charset={encoding}\r\n" if encoding == "koi8-r" else ""
    data = b"From: ada@example.org\r\nSubject: " + words.encode(encoding) + f"\r\n{kind}\r\n{_TEXT}".encode()
    extract = letter(tmp_path, data)
    assert extract.sections[0].heading == words
    assert f"Subject: {words}" in extract.sections[0].text


@pytest.mark.parametrize("encoding", ["7bit", "base64", "quoted-printable"])
def test_a_mail_within_a_mail_however_it_is_encoded(tmp_path: Path, encoding: str) -> None:
    inner = mail("Inner = deep")
    inner.set_content("The safe is behind the stove.")
    content = inner.as_bytes()
    if encoding == "base64":
        content = base64.encodebytes(content)
    elif encoding == "quoted-printable":
        content = content.replace(b"=", b"=3D").replace(b":", b"=3A")
    data = _HEAD + (
        b"Content-Type: multipart/mixed; boundary=xyz\r\n\r\n--xyz\r\n\r\nSee below.\r\n--xyz\r\n"
        + f"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode()
        + content
        + b"\r\n--xyz--\r\n"
    )
    extract = letter(tmp_path, data)
    assert extract.warnings == ()
    assert "behind the stove" in extract.sections[1].text
    assert "Inner = deep" in extract.sections[1].heading


def test_what_is_known_of_an_attachment_is_kept(tmp_path: Path) -> None:
    message = mail()
    message.set_content(_TEXT)
    for name in ("a.py", "a.xlsx", "a.pdf"):
        message.add_attachment(made.MAKERS[name](tmp_path / name).read_bytes(), "application", "x", filename=name)
    extract = letter(tmp_path, message)
    lines = {section.heading: section.line for section in extract.sections}
    alone = {f"attachment a.py › {section.heading}": section.line for section in read(tmp_path / "a.py").sections[1:]}
    assert alone.items() <= lines.items()
    assert "attachment a.xlsx › Costs" in lines
    assert "attachment a.pdf, page 2" in lines
    assert {section.page for section in extract.sections} == {None}
    starts = [section.start for section in extract.sections]
    assert starts == sorted(set(starts))
    assert extract.format is Format.MAIL


def test_how_sure_ocr_was_of_an_attachment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memory.ingest.reading import OcrText

    monkeypatch.setattr("memory.ingest.image.read_picture", lambda *_: OcrText("The gate opens at seven", 88.0))
    message = mail()
    message.set_content(_TEXT)
    made.png_header(tmp_path / "a.png", 40, 40)
    from PIL import Image

    Image.new("L", (40, 40), 255).save(tmp_path / "a.png")
    message.add_attachment((tmp_path / "a.png").read_bytes(), "image", "png", filename="a.png")
    assert letter(tmp_path, message).confidence == 88.0


def test_a_long_scan_in_a_mail_says_what_of_it_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_SECONDS", 0.0)
    message = mail()
    message.set_content(_TEXT)
    scan = scanned_pdf(tmp_path / "scan.pdf").read_bytes()
    message.add_attachment(scan, maintype="application", subtype="pdf", filename="scan.pdf")
    extract = letter(tmp_path, message)
    assert not extract.left
    left = 5 - parts.AT_ONCE
    assert extract.warnings == (
        f"{left} of the 5 pages of scan.pdf in a.eml were not read: save the attachment and name it.",
    )
