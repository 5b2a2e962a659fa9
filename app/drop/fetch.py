"""Fetches one web address, when a person asked for it: within limits, to a file that is read like any other."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NewType
from urllib.parse import unquote, urlsplit

from app.errors import PersonError

Url = NewType("Url", str)
"""An http or https address as a person gave it."""

LARGEST_PAGE = 50 * 2**20
"""Bytes."""
LONGEST_SECONDS = 60.0
_STALLED_SECONDS = 15.0
_MOST_REDIRECTS = 5
_AGENT = "aios-chat (a person asked for this page)"
_CHUNK = 1 << 16
_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "application/pdf": ".pdf",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "application/json": ".json",
    "application/epub+zip": ".epub",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
}
_LONGEST_NAME = 120


class FetchError(PersonError):
    """One sentence: which address was not fetched, why, and what to do."""


def as_url(text: str) -> Url | None:
    """`text` as a web address; None when it is none."""
    bare = text.strip()
    return Url(bare) if re.match(r"https?://[^\s/]", bare, re.IGNORECASE) and not re.search(r"\s", bare) else None


def fetch(url: Url, folder: Path) -> Path:
    """The file in `folder` that the address gave, named after it. Blocks. Raises FetchError."""
    import httpx

    deadline = time.monotonic() + LONGEST_SECONDS
    try:
        with (
            httpx.Client(
                follow_redirects=True,
                max_redirects=_MOST_REDIRECTS,
                timeout=_STALLED_SECONDS,
                headers={"User-Agent": _AGENT},
            ) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code >= 400:
                raise FetchError(f"{url} was not fetched: the server answered {answer.status_code}; check the address.")
            file = folder / _name(url, answer.headers.get("content-type", ""))
            size = 0
            with file.open("wb") as out:
                for chunk in answer.iter_bytes(_CHUNK):
                    size += len(chunk)
                    if size > LARGEST_PAGE:
                        raise FetchError(
                            f"{url} is larger than {LARGEST_PAGE >> 20} MB: download it yourself and name the file."
                        )
                    if time.monotonic() > deadline:
                        raise FetchError(f"{url} took longer than {LONGEST_SECONDS:.0f} seconds: try again later.")
                    out.write(chunk)
    except httpx.TooManyRedirects as error:
        raise FetchError(f"{url} leads from one address to the next without end: check the address.") from error
    except httpx.TimeoutException as error:
        raise FetchError(f"{url} did not answer within {_STALLED_SECONDS:.0f} seconds: try again later.") from error
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise FetchError(f"{url} was not fetched ({error}): check the address and the network.") from error
    return file


def _name(url: str, content_type: str) -> str:
    """A file name that says where it comes from: "example.org docs guide.html"."""
    parts = urlsplit(url)
    words = [parts.hostname or "page", *re.findall(r"[\w.-]+", unquote(parts.path))]
    name = " ".join(words)[:_LONGEST_NAME]
    kind = content_type.partition(";")[0].strip().lower()
    suffix = _SUFFIXES.get(kind, "")
    return name if not suffix or name.lower().endswith(suffix) else name + suffix
