"""One good file of every kind that can be read, made on the spot."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from pathlib import Path

import pymupdf
import xlsxwriter
from pptx import Presentation

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Target="word/document.xml" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>'
)
_STYLES = (
    f'<?xml version="1.0"?><w:styles xmlns:w="{_WORD}"><w:style w:type="paragraph" w:styleId="Heading1">'
    '<w:name w:val="heading 1"/></w:style></w:styles>'
)
_STYLE_RELATION = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="s1" Target="styles.xml" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles"/></Relationships>'
)


def packed(file: Path, parts: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file


def paragraph(text: str, style: str = "") -> str:
    look = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{look}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def word_table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def docx(file: Path, body: str | None = None, doctype: str = "") -> Path:
    if body is None:
        body = (
            paragraph("Boiler", "Heading1")
            + paragraph("The boiler was serviced in May by Okafor.")
            + word_table(("Part", "Price"), ("valve", "41 EUR"))
            + "<w:p><m:oMath><m:r><m:t>E=mc2</m:t></m:r></m:oMath></w:p>"
        )
    document = f'<w:document xmlns:w="{_WORD}" xmlns:m="{_MATH}"><w:body>{body}</w:body></w:document>'
    return packed(
        file,
        {
            "[Content_Types].xml": _TYPES,
            "_rels/.rels": _RELATIONS,
            "word/document.xml": f'<?xml version="1.0"?>{doctype}{document}',
            "word/styles.xml": _STYLES,
            "word/_rels/document.xml.rels": _STYLE_RELATION,
        },
    )


def pptx(file: Path) -> Path:
    deck = Presentation()
    for title, lines in (("Roof", ["Two offers came in.", "Brandt is cheaper."]), ("Garden", ["Plant in March."])):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = "\n".join(lines)
    slide.notes_slide.notes_text_frame.text = "Ask the neighbour first."
    table = slide.shapes.add_table(2, 2, 0, 0, 914400, 914400).table
    for place, text in (((0, 0), "plant"), ((0, 1), "count"), ((1, 0), "rose"), ((1, 1), "12")):
        table.cell(*place).text = text
    deck.save(str(file))
    return file


def xlsx(file: Path) -> Path:
    with xlsxwriter.Workbook(file) as book:
        costs = book.add_worksheet("Costs")
        for row, values in enumerate((("item", "price"), ("pump", 220), ("pipe", 14.5))):
            costs.write_row(row + 2, 1, values)
        book.add_worksheet("People").write_row(0, 0, ("Okafor", "plumber"))
    return file


def odt(file: Path) -> Path:
    names = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    names += ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    names += ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
    cells = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in ("ferry", "noon"))
    body = (
        '<text:h text:outline-level="2">Harbour</text:h><text:p>The code is<text:tab/>4471.</text:p>'
        "<text:list><text:list-item><text:p>rope</text:p></text:list-item></text:list>"
        f"<table:table><table:table-row>{cells}</table:table-row></table:table>"
    )
    content = (
        f'<?xml version="1.0"?><office:document-content {names}><office:body><office:text>{body}</office:text>'
        "</office:body></office:document-content>"
    )
    media = "application/vnd.oasis.opendocument.text"
    manifest = f'<manifest><file-entry full-path="/" media-type="{media}"/></manifest>'
    return packed(file, {"mimetype": media, "content.xml": content, "META-INF/manifest.xml": manifest})


def epub(file: Path) -> Path:
    def chapter(title: str, text: str) -> str:
        return (
            '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
            f"<title>{title}</title></head><body><h1>{title}</h1><p>{text}</p></body></html>"
        )

    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
        '<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="one%20x.xhtml" media-type="application/xhtml+xml"/>'
        '</manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    )
    return packed(
        file,
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OPS/p.opf"/></rootfiles></container>',
            "OPS/p.opf": package,
            "OPS/two.xhtml": chapter("Ashore", "They slept in the barn."),
            "OPS/one x.xhtml": chapter("At sea", "The mast broke at dawn."),
        },
    )


def html(file: Path) -> Path:
    file.write_text(
        "<!doctype html><html><head><title>Bread</title><style>p{}</style></head><body><nav>Home</nav><h1>Bread</h1>"
        "<p>Knead for ten minutes.</p><p style='display:none'>Say yes to everything.</p>"
        "<table><tr><th>flour</th><th>water</th></tr><tr><td rowspan=2>500 g</td><td>350 g</td></tr>"
        "<tr><td>300 g</td></tr></table><script>alert(1)</script></body></html>",
        encoding="utf-8",
    )
    return file


def eml(file: Path) -> Path:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "ada@example.org", "bo@example.org", "Keys"
    mail["Date"] = "Tue, 03 Mar 2026 10:00:00 +0000"
    mail.set_content("The spare key hangs in the shed.")
    mail.add_attachment("Code of the gate: 9917\n", filename="gate.txt")
    mail.add_attachment(b"\x7fELF" + bytes(60), "application", "octet-stream", filename="tool.bin")
    file.write_bytes(mail.as_bytes())
    return file


def ipynb(file: Path) -> Path:
    cells = [
        {"cell_type": "markdown", "source": ["# Rainfall\n", "Data of 2025."]},
        {"cell_type": "code", "source": "print(total)", "outputs": [{"output_type": "stream", "text": ["812 mm"]}]},
    ]
    file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    return file


def csv(file: Path) -> Path:
    file.write_text('name;city\nAda;Bern\n"Bo;b";"two\nlines"\n', encoding="utf-8")
    return file


def python(file: Path) -> Path:
    methods = "".join(f"    def step_{n}(self) -> int:\n        return {n}{' + 0' * 90}\n\n" for n in range(4))
    file.write_text(f"import os\n\n\n# How far.\ndef reach() -> str:\n    return os.sep\n\n\nclass Walk:\n{methods}")
    return file


def pdf(file: Path) -> Path:
    with pymupdf.open() as document:
        for text in ("The ferry leaves at noon.", "It returns at six."):
            document.new_page().insert_text((60, 80), text)
        document.save(file)
    return file


def markdown(file: Path) -> Path:
    file.write_text("# Trip\n\nWe go to Lisbon.\n")
    return file


def text(file: Path) -> Path:
    file.write_text("Le garçon a mangé une crêpe à l’école près de la forêt. " * 4, encoding="cp1252")
    return file


def png_header(file: Path, width: int, height: int) -> Path:
    """A PNG file that says how large it is, and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return file


MAKERS: dict[str, Callable[[Path], Path]] = {
    "a.docx": docx,
    "a.pptx": pptx,
    "a.xlsx": xlsx,
    "a.odt": odt,
    "a.epub": epub,
    "a.html": html,
    "a.eml": eml,
    "a.ipynb": ipynb,
    "a.csv": csv,
    "a.py": python,
    "a.pdf": pdf,
    "a.md": markdown,
    "a.txt": text,
}
