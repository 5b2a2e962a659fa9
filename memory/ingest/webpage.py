"""HTML files and fetched pages: the article without the menus around it, or all of a page that is no article."""

from __future__ import annotations

import logging

from memory.chunking import Layout, Section
from memory.ingest import html
from memory.ingest.extract import Extract, Format, Job
from memory.types import NoTextError

_SHORT = 2000
"""Characters of a page that has nothing to leave out."""
_SHARE = 0.6
"""An article that holds less than this of the page's letters may have lost some of the page's own text."""


def read(job: Job) -> Extract:
    """An HTML page; its encoding is the one that it names."""
    job.step("read", 0, 1)
    data = job.path.read_bytes()
    soup, title = html.titled(data)
    whole = html.markdown(soup)
    if not whole.strip():
        raise NoTextError(f"{job.name} shows no text without running its scripts: save it from the browser as PDF.")
    article = _article(str(soup)) if len(whole) > _SHORT else ""
    text = article if _letters(article) >= _SHARE * _letters(whole) and "\n#" in f"\n{article}" else whole
    job.step("read", 1, 1)
    return Extract(Format.PAGE, (Section(text, heading=title),), layout=Layout.MARKDOWN)


def _article(page: str) -> str:
    import trafilatura

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    try:
        found = trafilatura.extract(
            page,
            output_format="html",
            favor_recall=True,
            include_comments=False,
            include_links=True,
            include_tables=True,
        )
    except (ValueError, TypeError, AttributeError, RecursionError, AssertionError):
        return ""  # the whole page is there as well
    return html.markdown(html.soup_of(found)) if found else ""


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)
