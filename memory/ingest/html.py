"""HTML to Markdown: headings, lists, tables, links and code keep their meaning; scripts and menus go."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_NEVER = ("script", "style", "noscript", "template", "svg", "iframe", "object", "head", "nav", "button", "select")
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?!\.?[1-9])", re.IGNORECASE
)
_LEADS = re.compile(r"\s*(?:https?://|mailto:)", re.IGNORECASE)
"""Links that lead somewhere by themselves. Others say nothing away from their page; of an article of Wikipedia they are
a third of the characters."""
_WIDEST_SPAN = 50
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_MOST_NESTED = 300
"""Elements inside each other: browsers stop at 512, and markdownify takes two stack frames for each."""


def soup_of(markup: str | bytes) -> BeautifulSoup:
    """The tree of a page, without what its reader would not see."""
    return titled(markup)[0]


def titled(markup: str | bytes) -> tuple[BeautifulSoup, str]:
    """The tree of a page, without what its reader would not see, and what the page calls itself, or ""."""
    from bs4 import Comment

    soup = _parsed(markup)
    title = " ".join(soup.title.get_text().split()) if soup.title is not None else ""
    for note in soup.find_all(string=lambda text: isinstance(text, Comment)):
        note.extract()
    for tag in [tag for tag in soup.find_all(True) if _is_unseen(tag)]:
        tag.extract()
    return soup, title


def _is_unseen(tag: Tag) -> bool:
    return tag.name in _NEVER or tag.has_attr("hidden") or bool(_HIDDEN.search(str(tag.get("style", ""))))


def _parsed(markup: str | bytes) -> BeautifulSoup:
    from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        return BeautifulSoup(markup, "lxml")


def markdown(soup: BeautifulSoup) -> str:
    """The tree as Markdown. A page nested deeper than any honest one comes as its bare text."""
    from markdownify import MarkdownConverter

    if _depth(soup) > _MOST_NESTED:
        return _BLANK_LINES.sub("\n\n", soup.get_text("\n"))
    for link in soup.find_all("a"):
        if not _LEADS.match(str(link.get("href", ""))):
            link.unwrap()
    for table in soup.find_all("table"):
        if table.find(_spans) is not None:
            _spread(table)
    converter = MarkdownConverter(
        heading_style="ATX",
        bullets="-",
        strip=["img"],
        table_infer_header=True,
        escape_asterisks=False,
        escape_underscores=False,
        escape_misc=False,
    )
    return _BLANK_LINES.sub("\n\n", str(converter.convert_soup(soup))).strip()


def _depth(soup: BeautifulSoup) -> int:
    deepest, level = 0, [(soup, 1)]
    from bs4 import Tag as Element

    while level:
        tag, depth = level.pop()
        deepest = max(deepest, depth)
        level += [(child, depth + 1) for child in tag.children if isinstance(child, Element)]  # type: ignore[misc]
    return deepest


def _spread(table: Tag) -> None:
    """Repeat a cell that spans rows or columns in each of them: Markdown has no spans, and a row must say it all."""
    from bs4 import Tag as Element

    due: dict[int, tuple[int, str]] = {}
    for row in table.find_all("tr"):
        if row.find_parent("table") is not table:
            continue
        cells = row.find_all(["td", "th"], recursive=False)
        column = 0
        for cell in [*cells, None]:
            while column in due:
                left, text = due.pop(column)
                if left > 1:
                    due[column] = (left - 1, text)
                copy = Element(name="td")
                copy.string = text
                row.append(copy) if cell is None else cell.insert_before(copy)
                column += 1
            if cell is None:
                break
            wide, high = _span(cell, "colspan"), _span(cell, "rowspan")
            text = " ".join(cell.get_text(" ").split())
            for extra in range(wide):
                if high > 1:
                    due[column + extra] = (high - 1, text)
            for _ in range(wide - 1):
                copy = Element(name="td")
                copy.string = text
                cell.insert_after(copy)
            del cell["colspan"], cell["rowspan"]
            column += wide


def _spans(tag: Tag) -> bool:
    return tag.has_attr("rowspan") or tag.has_attr("colspan")


def _span(cell: Tag, name: str) -> int:
    value = str(cell.get(name, "1")).strip()
    return min(max(int(value), 1), _WIDEST_SPAN) if value.isdecimal() else 1
