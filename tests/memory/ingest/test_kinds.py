from __future__ import annotations

import random
import zipfile
from dataclasses import replace
from pathlib import Path

import bs4
import msoffcrypto
import pytest

from memory.ingest.columns import lines
from memory.ingest.extract import Format, Job
from memory.ingest.readers import read_file
from memory.types import NeedsPasswordError, NoTextError, UnsupportedFileError
from tests.memory.ingest import made
from tests.memory.ingest.reading import read, refusal, whole


def test_word(tmp_path: Path) -> None:
    extract = read(made.docx(tmp_path / "a.docx"))
    assert extract.format is Format.WORD
    text = whole(extract)
    assert "# Boiler" in text
    assert "| Part | Price |" in text
    assert "| valve | 41 EUR |" in text
    assert "E=mc2" in text


def test_slides_are_pages(tmp_path: Path) -> None:
    extract = read(made.pptx(tmp_path / "a.pptx"))
    assert (extract.format, extract.pages) == (Format.SLIDES, 2)
    assert [section.page for section in extract.sections] == [1, 2]
    assert extract.sections[0].text == "# Roof\n\n- Two offers came in.\n- Brandt is cheaper."
    assert "| rose | 12 |" in extract.sections[1].text
    assert "Notes: Ask the neighbour first." in extract.sections[1].text


def test_a_sheet_names_its_columns_in_every_row_and_keeps_row_numbers(tmp_path: Path) -> None:
    extract = read(made.xlsx(tmp_path / "a.xlsx"))
    assert extract.format is Format.TABLE
    costs, people = extract.sections
    assert (costs.heading, people.heading) == ("Costs", "People")
    assert costs.text.split("\n")[2:] == ["item | price", "item: pump; price: 220", "item: pipe; price: 14.5"]
    assert people.start > len(costs.text)


def test_values_separated_by_anything(tmp_path: Path) -> None:
    assert (
        whole(read(made.csv(tmp_path / "a.csv"))) == "name | city\nname: Ada; city: Bern\nname: Bo;b; city: two lines"
    )
    for delimiter in ",\t|":
        file = tmp_path / "b.csv"
        file.write_text("\n".join(delimiter.join(row) for row in (["day", "rain"], ["Mon", "3"], ["Tue", "0"])))
        assert whole(read(file)) == "day | rain\nday: Mon; rain: 3\nday: Tue; rain: 0"


def test_tables_below_each_other_have_each_their_header() -> None:
    rows = [["Ducks"], [], ["year", "count"], ["2019", "120"], [], ["name", "city"], ["Ada", "Bern"], ["", "", "x"]]
    assert list(lines(rows)) == [
        "Ducks",
        "",
        "year | count",
        "year: 2019; count: 120",
        "",
        "name | city",
        "name: Ada; city: Bern",
        "x",
    ]


def test_numbers_in_the_first_row_are_no_header() -> None:
    assert list(lines([["1", "2"], ["3", "4"]])) == ["1; 2", "3; 4"]


def test_opendocument(tmp_path: Path) -> None:
    extract = read(made.odt(tmp_path / "a.odt"))
    assert whole(extract) == "## Harbour\n\nThe code is 4471.\n\n- rope\n\n| ferry | noon |\n| --- | --- |"


def test_a_book_in_its_reading_order(tmp_path: Path) -> None:
    extract = read(made.epub(tmp_path / "a.epub"))
    assert [(section.heading, section.text) for section in extract.sections] == [
        ("At sea", "# At sea\n\nThe mast broke at dawn."),
        ("Ashore", "# Ashore\n\nThey slept in the barn."),
    ]


def test_a_web_page_without_what_nobody_sees(tmp_path: Path) -> None:
    extract = read(made.html(tmp_path / "a.html"))
    assert extract.sections[0].heading == "Bread"
    text = whole(extract)
    assert "Knead for ten minutes." in text
    assert "| 500 g | 300 g |" in text
    for unseen in ("alert", "Say yes", "Home", "p{}"):
        assert unseen not in text


def test_links_that_lead_nowhere_by_themselves_leave_their_words(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text(
        '<html><body><p>The <a href="/wiki/Duck">duck</a> is a <a href="#bird">bird</a>, says <a name="x">the</a> '
        '<a href="javascript:go()">book</a> at <a href="https://example.org/b">its page</a>; '
        'write to <a href="mailto:ann@example.org">Ann</a>.</p></body></html>'
    )
    assert whole(read(page)) == (
        "The duck is a bird, says the book at [its page](https://example.org/b); "
        "write to [Ann](mailto:ann@example.org)."
    )


def test_an_article_without_the_page_around_it(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    body = "".join(f"<p>Paragraph {n} tells of the lighthouse and its keeper at some length.</p>" for n in range(40))
    file.write_text(
        f"<html><body><nav>Menu</nav><article><h1>Light</h1>{body}</article><footer>Imprint</footer></body>"
    )
    text = whole(read(file))
    assert "Paragraph 39 tells" in text
    assert "Imprint" not in text


def test_a_page_is_taken_apart_no_more_often_for_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees: list[object] = []
    begin = bs4.BeautifulSoup.__init__
    monkeypatch.setattr(
        bs4.BeautifulSoup, "__init__", lambda self, *a, **k: (trees.append(self), begin(self, *a, **k))[1]
    )
    table = "<p>Words of number {0}.</p><table><tr><td rowspan=2>a{0}</td><td>b</td></tr><tr><td>c</td></tr></table>"
    file = tmp_path / "a.html"
    for count in (100, 200):
        file.write_text("<title>Tides</title><h1>All</h1>" + "".join(table.format(n) for n in range(count)))
        trees.clear()
        extract = read(file)
        assert extract.sections[0].heading == "Tides"
        assert f"| a{count - 1} | c |" in whole(extract)
        assert len(trees) == 2  # the page, and its article


def test_mail_with_its_attachments(tmp_path: Path) -> None:
    extract = read(made.eml(tmp_path / "a.eml"))
    letter, attached = extract.sections
    assert letter.heading == "Keys"
    assert "From: ada@example.org" in letter.text
    assert "in the shed" in letter.text
    assert (attached.heading, attached.text.strip()) == ("attachment gate.txt", "Code of the gate: 9917")
    assert len(extract.warnings) == 1
    assert "tool.bin" in extract.warnings[0]


def test_a_mail_in_a_mail_in_a_mail(tmp_path: Path) -> None:
    file = made.eml(tmp_path / "0.eml")
    for number in range(1, 6):
        outer = made.EmailMessage()
        outer["From"], outer["Subject"] = "ada@example.org", f"Level {number}"
        outer.add_attachment(file.read_bytes(), "application", "octet-stream", filename=file.name)
        file = tmp_path / f"{number}.eml"
        file.write_bytes(outer.as_bytes())
    extract = read(file)
    assert extract.sections[0].heading == "Level 5"
    assert any("too many" in warning for warning in extract.warnings)


def test_a_notebook(tmp_path: Path) -> None:
    assert whole(read(made.ipynb(tmp_path / "a.ipynb"))) == (
        "# Rainfall\nData of 2025.\n\n```\nprint(total)\n```\n\nOutput:\n```\n812 mm\n```"
    )


def test_code_by_definition_with_lines_and_offsets(tmp_path: Path) -> None:
    file = made.python(tmp_path / "a.py")
    extract = read(file)
    source = file.read_text()
    headings = [section.heading for section in extract.sections]
    assert headings == ["", "reach", "Walk", "Walk › step_0", "Walk › step_1", "Walk › step_2", "Walk › step_3"]
    assert extract.sections[1].text.startswith("# How far.\ndef reach")
    for section in extract.sections:
        assert source[section.start : section.start + len(section.text)] == section.text
        assert section.line == source.count("\n", 0, section.start) + 1


_PROGRAMS = {
    "a.js": ("const add = (a, b) => a + b;\nclass Box { get() { return 1; } }\n", ["add", "Box"]),
    "a.ts": ("export function greet(n: string): string { return n; }\ninterface P { x: number }\n", ["greet", "P"]),
    "a.tsx": ("export const App = () => <p>x</p>;\n", ["App"]),
    "a.c": ("static int *count(int a)\n{\n  return 0;\n}\nstruct point { int x; };\n", ["count", "point"]),
    "a.cpp": ("namespace sea { int depth() { return 3; } }\n", ["sea"]),
    "a.java": ("class Boat { void sail() {} }\n", ["Boat"]),
    "a.go": ("package p\n\n// Row rows.\nfunc (b *Boat) Row() {}\n", ["Row"]),
    "a.rs": ("/// Doc.\n#[test]\nfn reef() {}\nimpl Sail { fn up() {} }\n", ["reef", "Sail"]),
    "a.rb": ("class Oar\n  def pull; end\nend\n", ["Oar"]),
    "a.sh": ("deploy() {\n  echo x\n}\n", ["deploy"]),
    "a.cs": ("class Mast { void Lift() {} }\n", ["Mast"]),
    "a.php": ("<?php\nfunction tide() { return 1; }\n", ["tide"]),
}


@pytest.mark.parametrize("name", _PROGRAMS)
def test_definitions_in_every_language_with_a_grammar(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    source, wanted = _PROGRAMS[name]
    file.write_text(source)
    extract = read(file)
    assert [section.heading for section in extract.sections if section.heading] == wanted
    assert "".join(whole(extract).split()) == "".join(source.split())


def test_broken_and_unknown_code_is_read_as_well(tmp_path: Path) -> None:
    for name in ("a.py", "a.rs", "a.nim"):
        file = tmp_path / name
        file.write_text("def (((\n}}} 漢字 class\n" * 5, encoding="utf-8")
        assert "".join(whole(read(file)).split()) == "".join(file.read_text(encoding="utf-8").split())


def test_archives_and_old_office_files_say_what_to_do(tmp_path: Path) -> None:
    archive = made.packed(tmp_path / "papers.zip", {"a.txt": "x"})
    assert "Unpack it" in refusal(archive, UnsupportedFileError)
    for magic in (b"\x1f\x8b\x08\0", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07"):
        file = tmp_path / "papers.bin"
        file.write_bytes(magic + bytes(64))
        assert "Unpack it" in refusal(file, UnsupportedFileError)


def test_documents_without_a_word(tmp_path: Path) -> None:
    refusal(made.docx(tmp_path / "a.docx", "<w:p/>"), NoTextError)
    page = tmp_path / "a.html"
    page.write_text("<html><body><div id=app></div><script>render()</script></body></html>")
    assert "scripts" in refusal(page, NoTextError)


def test_locked_office_files(tmp_path: Path) -> None:
    content = made.odt(tmp_path / "a.odt")
    with zipfile.ZipFile(content) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["META-INF/manifest.xml"] += b"<manifest:encryption-data/>"
    refusal(made.packed(tmp_path / "b.odt", parts), NeedsPasswordError)
    with zipfile.ZipFile(made.epub(tmp_path / "a.epub")) as archive:
        book = {name: archive.read(name) for name in archive.namelist()}
    book["META-INF/encryption.xml"] = b"<EncryptionMethod Algorithm='http://www.w3.org/2001/04/xmlenc#aes256-cbc'/>"
    refusal(made.packed(tmp_path / "b.epub", book), NeedsPasswordError)


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx"])
def test_encrypted_office_files_open_with_their_password(tmp_path: Path, name: str) -> None:
    plain = made.MAKERS[name](tmp_path / name)
    with zipfile.ZipFile(plain, "a") as archive:  # msoffcrypto writes what is below 4 KiB as nobody can read it
        archive.writestr("media/noise", random.Random(3).randbytes(8192))
    locked = tmp_path / f"locked-{name}"
    with plain.open("rb") as file, locked.open("wb") as out:
        msoffcrypto.OfficeFile(file).encrypt("käse", out)
    assert "needs a password" in refusal(locked, NeedsPasswordError)
    given = Job(locked, locked.name, "eng", lambda progress: None, lambda: False, "käse")
    assert read_file(given).sections == read(plain).sections
    with pytest.raises(NeedsPasswordError, match="another password"):
        read_file(replace(given, password="brot"))


def test_what_nobody_can_see_is_taken_out_of_every_text(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    file.write_text(f"pay\u200bpal \u202eevil\u202c ﬁne{tags}\u2066x\u2069\ufeff \u0007y", encoding="utf-8")
    assert whole(read(file)) == "paypal evil finex y"
