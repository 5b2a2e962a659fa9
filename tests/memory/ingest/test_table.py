"""Which row names the columns, what parts the cells, and how much of a sheet is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import xlsxwriter

from memory.ingest import table
from memory.ingest.columns import lines
from tests.memory.ingest.reading import read, whole


def rows(text: str) -> list[list[str]]:
    return [line.split(",") if line else [] for line in text.split(" / ")]


_NAMED = {
    "words after a gap": ("name,city / Alice,Paris /  / Carol,Oslo / Dave,Kiel", "Carol; Oslo / Dave; Kiel"),
    "fewer words after a gap": (
        "name,city,job / Al,Ulm,cook /  / Carol,Oslo, / Dave,Kiel,",
        "Carol; Oslo / Dave; Kiel",
    ),
    "two gaps": ("name,city / Al,Ulm /  /  / Bo,Bern /  / Cy,Oslo / Di,Kiel", "Cy; Oslo / Di; Kiel"),
    "a title between": ("name,city / Al,Ulm /  / Others / Carol,Oslo / Dave,Kiel", "Carol; Oslo / Dave; Kiel"),
    "numbers after a gap": ("name,age / Ann,30 /  / Bob,41 / Cy,7", "name: Bob; age: 41 / name: Cy; age: 7"),
    "a gap below the header": ("name,age /  / Bob,41 / Cy,7", "name: Bob; age: 41 / name: Cy; age: 7"),
    "the header again": ("name,city / Al,Ulm /  / name,city / Bo,Bern", "name | city / name: Bo; city: Bern"),
    "words where numbers were": (
        "year,count / 2019,12 /  / name,city / Ada,Bern",
        "name | city / name: Ada; city: Bern",
    ),
    "words above numbers": ("name,city / Al,Ulm /  / item,price / pump,220", "item | price / item: pump; price: 220"),
    "more columns": ("name,city / Al,Ulm /  / a,b,c / x,y,z", "a | b | c / a: x; b: y; c: z"),
    "years": ("item,2022,2023 / pump,10,20", "item | 2022 | 2023 / item: pump; 2022: 10; 2023: 20"),
    "years alone": (",2023,2022,2021 / pump,10,20,30", "2023 | 2022 | 2021 / pump; 2023: 10; 2022: 20; 2021: 30"),
    "school years": (
        "class,2022/23,2023/24 / 4b,10,20",
        "class | 2022/23 | 2023/24 / class: 4b; 2022/23: 10; 2023/24: 20",
    ),
    "years of birth": ("Alice,1990 / Bob,1985", "Alice; 1990 / Bob; 1985"),
    "years from and to": ("Alice,1990,1991 / Bob,1985,1986", "Alice; 1990; 1991 / Bob; 1985; 1986"),
    "years and numbers": ("Alice,1990,12 / Bob,1985,7", "Alice; 1990; 12 / Bob; 1985; 7"),
    "years of nothing": ("Alice,2022,2023 / Bob", "Alice; 2022; 2023 / Bob"),
}


@pytest.mark.parametrize("name", _NAMED)
def test_columns_are_named_by_a_header_and_by_nothing_else(name: str) -> None:
    given, wanted = _NAMED[name]
    assert " / ".join(lines(rows(given))).endswith(wanted)
    assert len(list(lines(rows(given)))) == len(rows(given))


_SEPARATED = {
    "quotes within quotes": (
        'name;said\nAda;"a ""b"" c"\nBo;"d; e"\n',
        'name: Ada; said: a "b" c\nname: Bo; said: d; e',
    ),
    "blanks after commas": ('name, said\nAda, "a, b"\nBo, c\n', "name: Ada; said: a, b\nname: Bo; said: c"),
    "decimal commas": ("place;depth\nA;1,5\nB;2,5\n", "place: A; depth: 1,5\nplace: B; depth: 2,5"),
    "decimal commas alone": ("A;1,5\nB;2,5\nC;3,5\n", "A; 1,5\nB; 2,5\nC; 3,5"),
    "times": ("name,time\nBern,12:30\nOslo,13:45\n", "name: Bern; time: 12:30\nname: Oslo; time: 13:45"),
    "apostrophes": ("name,said\nAda,it's\nBo,that's ; so\n", "name: Ada; said: it's\nname: Bo; said: that's ; so"),
    "one column": ("name\nAda\nBo\n", "name\nAda\nBo"),
    "a line over two": ('name|said\nAda|"one\ntwo"\nBo|x\n', "name: Ada; said: one two\nname: Bo; said: x"),
    "tabs": ("name\tcity, land\nAda\tBern, CH\n", "name: Ada; city, land: Bern, CH"),
    "one row": ("Ada,Bern\n", "Ada | Bern"),
}


@pytest.mark.parametrize("name", _SEPARATED)
def test_what_parts_the_cells(tmp_path: Path, name: str) -> None:
    given, wanted = _SEPARATED[name]
    file = tmp_path / "a.csv"
    file.write_text(given)
    assert whole(read(file)).endswith(wanted)


def test_text_below_any_number_of_empty_rows_is_read(tmp_path: Path) -> None:
    far = table.MOST_ROWS + 50
    for above in (True, False):
        with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
            sheet = book.add_worksheet("Far")
            if above:
                sheet.write_row(0, 0, ("name", "age"))
            sheet.write_row(far, 0, ("Ada", 30))
            book.add_worksheet("Blank")
        extract = read(tmp_path / "a.xlsx")
        (section,) = extract.sections
        assert section.text.split("\n")[far] == ("name: Ada; age: 30" if above else "Ada; 30")
        assert section.line == 1
        assert extract.warnings == ()
    (tmp_path / "a.csv").write_text("a,b\n" + "\n" * far + "Ada,30\n")
    extract = read(tmp_path / "a.csv")
    assert extract.sections[0].text.split("\n")[far + 1] == "a: Ada; b: 30"
    assert extract.warnings == ()


@pytest.mark.parametrize("kind", ["a.csv", "a.xlsx"])
def test_a_sheet_cut_at_its_limit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(table, "MOST_ROWS", 3)
    for count in (3, 4):
        values = [("x", str(number)) for number in range(count)]
        if kind == "a.csv":
            (tmp_path / kind).write_text("\n\n" + "\n\n".join(",".join(row) for row in values) + "\n\n")
        else:
            with xlsxwriter.Workbook(tmp_path / kind) as book:
                sheet = book.add_worksheet("S")
                for number, row in enumerate(values):
                    sheet.write_row(2 * number + 2, 0, row)
        extract = read(tmp_path / kind)
        assert whole(extract).strip().endswith("x; 2")
        assert [("first 3 rows" in warning) for warning in extract.warnings] == [True] * (count - 3)
