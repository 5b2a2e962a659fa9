"""Pages that are pictures, read two at once and for some seconds; what is left over is read another time, so that a
book of three hundred scans is searched as far as it has been read, and keeps nothing waiting."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from memory.chunking import Section
from memory.ingest.extract import Job

PART_SECONDS = 15.0
"""After these no further page is begun: a page takes 2 to 10 s on two free cores, and 30 at most."""
AT_ONCE = max(1, min(2, os.cpu_count() or 1))
"""Tesseract reads a page with one thread."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class PageText:
    """What a page says. `confidence` is how sure OCR was, 0..100, None for a text layer; `warning` is one sentence,
    or empty."""

    text: str
    confidence: float | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Some pages of a file. `left` are those that were not begun."""

    pages: dict[int, PageText]
    left: tuple[int, ...]

    @property
    def sections(self) -> list[Section]:
        """The pages that say something, in order."""
        return [
            Section(page.text, page=number, confidence=page.confidence)
            for number, page in sorted(self.pages.items())
            if page.text.strip()
        ]

    @property
    def warnings(self) -> list[str]:
        """One sentence for each page that has one, in order."""
        return [page.warning for _, page in sorted(self.pages.items()) if page.warning]


def read_part(job: Job, numbers: Sequence[int], total: int, begin: Callable[[int], Callable[[], PageText]]) -> Part:
    """Read as many of the pages `numbers` of `total` as fit into `PART_SECONDS`, the first ones in any case.

    `begin(number)` renders a page on this thread (neither MuPDF nor Pillow likes several) and gives what reads it on
    another. Raises IngestCancelledError.
    """
    began = time.monotonic()
    done: dict[int, PageText] = {}
    running: dict[Future[PageText], int] = {}
    left = deque(numbers)
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="page")
    try:
        while True:
            job.step("ocr", total - len(left) - len(running), total)
            while left and len(running) < AT_ONCE and _more(len(done) + len(running), time.monotonic() - began):
                number = left.popleft()
                running[pool.submit(begin(number))] = number
            if not running:
                return Part(done, tuple(left))
            finished, _ = wait(running, _LOOK_SECONDS, FIRST_COMPLETED)
            for future in finished:
                done[running.pop(future)] = future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _more(begun: int, seconds: float) -> bool:
    return begun < AT_ONCE or seconds < PART_SECONDS
