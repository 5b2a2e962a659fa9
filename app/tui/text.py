"""Small pure helpers that turn facts into words. No Textual."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from app.events import IngestJob, JobPhase
from app.host.wire import Passage, WindowView
from app.ids import ChatId, MessageId
from app.store.types import Attachment, Message
from app.tui.glyphs import GLYPHS


def clock(seconds: float) -> str:
    """A time of day, with the date when it is not today's."""
    then = time.localtime(seconds)
    today = time.localtime()
    same_day = then[:3] == today[:3]
    return time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", then)


def megabytes(count: int) -> str:
    """Bytes as MB (10^6), with one decimal below 100."""
    value = count / 1e6
    return f"{value:.1f} MB" if value < 100 else f"{value:,.0f} MB"


def file_size(count: int) -> str:
    """Bytes as B, kB or MB."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:,.0f} kB" if count < 1_000_000 else megabytes(count)


def one_line(text: str, width: int) -> str:
    """`text` as a single line of at most `width` characters."""
    flat = " ".join(text[: width * 8].split())
    return flat if len(flat) <= width else flat[: max(0, width - 1)].rstrip() + GLYPHS.ellipsis


def plural(count: int, noun: str) -> str:
    """ "1 page", "1,204 pages"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def newlines(text: str) -> str:
    """Terminals paste CR for a line end; NULs are noise."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")


def typed_path(text: str) -> Path:
    """A path as a person types it: maybe in quotes, maybe from the home folder."""
    return Path(os.path.expanduser(text.strip().strip("'\"")))


def export_name(title: str) -> str:
    """A plain file name made from a chat's title."""
    words = re.findall(r"\w+", title)
    return ("-".join(words)[:60].strip("-") or "chat") + ".md"


def export_path(argument: str, title: str) -> Path:
    """Where an export goes: the named file, a file inside a named folder, or one in the current folder."""
    if not argument:
        return Path.cwd() / export_name(title)
    path = typed_path(argument)
    return path / export_name(title) if path.is_dir() else path


def evicted(window: WindowView | None, order: Sequence[MessageId]) -> frozenset[MessageId]:
    """Which messages of a path (oldest first) the model no longer sees at all.

    A message is text only when the engine counts no visible token of it, or when it lies before the oldest visible one
    that is not pinned. Newer ones, which the engine has not read yet, are not evicted. Without a window nothing is.
    """
    if window is None:
        return frozenset()
    seen = {s.message for s in window.segments if s.message is not None and s.visible_tokens > 0}
    gone = {s.message for s in window.segments if s.message is not None and not s.visible_tokens}
    pinned = {s.message for s in window.segments if s.pinned}
    first = next((index for index, message in enumerate(order) if message in seen - pinned), 0)
    return frozenset(m for i, m in enumerate(order) if m not in seen and (i < first or m in gone))


def job_words(job: IngestJob) -> str:
    """Where one file's ingestion stands."""
    match job.phase:
        case JobPhase.WAITING:
            return "waiting"
        case JobPhase.DONE:
            sure = f", pictures read {job.confidence:.0f} % sure" if job.confidence is not None else ""
            words = f"{GLYPHS.done} {plural(job.passages, 'passage')}{sure}"
            return f"{words} {GLYPHS.dot} {job.detail}" if job.detail else words
        case JobPhase.FAILED:
            return f"{GLYPHS.failed} {job.detail or 'could not be read'}"
        case JobPhase.READING | JobPhase.OCR | JobPhase.EMBEDDING | JobPhase.STORING:
            verb = {
                JobPhase.READING: "reading",
                JobPhase.OCR: "recognising",
                JobPhase.EMBEDDING: "indexing",
                JobPhase.STORING: "storing",
            }[job.phase]
            return f"{verb} {job.done}/{job.total}" if job.total else verb


def job_of(attachment: Attachment, jobs: Sequence[IngestJob], chat: ChatId | None) -> IngestJob | None:
    """The newest job that reads this attachment: by document once it is known, else by name and chat."""
    for job in reversed(jobs):
        if attachment.document is not None and job.document == attachment.document:
            return job
        if job.name == attachment.name and job.chat in (None, chat):
            return job
    return None


def cited(message: Message) -> tuple[Passage, ...]:
    """The passages an answer rests on, in the order of its citations."""
    by_label = {passage.label: passage for passage in message.passages}
    return tuple(by_label[label] for label in message.citations if label in by_label)
