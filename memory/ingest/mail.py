"""E-mail (.eml): who wrote to whom about what, the text, and every attachment that can be read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path

from memory.chunking import Layout, Section
from memory.ingest import html
from memory.ingest.extract import Extract, Format, Job, Reader
from memory.types import DamagedFileError, IngestCancelledError, IngestError

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MOST_NESTED = 3
"""Mails attached to mails."""
_MOST_PARTS = 200


def read(job: Job, attachment: Reader, depth: int = 0) -> Extract:
    """A message. `attachment` reads whatever hangs on it; one that cannot be read is a warning."""
    job.step("read", 0, 1)
    try:
        message = BytesParser(policy=policy.default).parsebytes(job.path.read_bytes())
        head = "\n".join(f"{name}: {message[name]}" for name in _HEADERS if message[name])
        body = _body(message)
    except (ValueError, LookupError, AttributeError, IndexError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{job.name} is no whole e-mail ({type(error).__name__}): save it again.") from error
    if not head:
        raise DamagedFileError(f"{job.name} is no e-mail, or it is damaged: it has no sender and no subject.")
    sections = [Section(f"{head}\n\n{body}".strip(), heading=str(message["Subject"] or ""))]
    warnings: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, data) in enumerate(_attachments(message)):
            if number >= _MOST_PARTS or depth >= _MOST_NESTED:
                warnings.append(f"The attachments of {job.name} from {name} on were not read: there are too many.")
                break
            file = Path(folder, str(number))
            file.write_bytes(data)
            inner = Job(file, name, job.ocr_languages, job.on_progress, job.cancelled)
            try:
                part = read(inner, attachment, depth + 1) if name.endswith(".eml") else attachment(inner)
            except IngestCancelledError:
                raise
            except IngestError as error:
                warnings.append(f"An attachment of {job.name} was not read. {error}")
                continue
            sections += [_within(section, name) for section in part.sections]
            warnings += part.warnings
    job.step("read", 1, 1)
    return Extract(Format.MAIL, tuple(sections), warnings=tuple(warnings), layout=Layout.MARKDOWN)


def _body(message: EmailMessage) -> str:
    part = message.get_body(("plain", "html"))
    if part is None:
        return ""
    content = part.get_content()
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    return html.markdown(html.soup_of(text)) if part.get_content_subtype() == "html" else text


def _attachments(message: EmailMessage) -> Iterator[tuple[str, bytes]]:
    for number, part in enumerate(message.iter_attachments(), start=1):
        name = Path(part.get_filename() or f"attachment {number}").name
        if part.get_content_type() == "message/rfc822":
            inner = part.get_payload(0)
            yield (name if name.endswith(".eml") else f"{name}.eml"), inner.as_bytes()  # type: ignore[union-attr]
        elif isinstance(data := part.get_payload(decode=True), bytes) and data:
            yield name, data


def _within(section: Section, name: str) -> Section:
    """A section of an attachment, which says so; its page is the attachment's, not the mail's."""
    page = f", page {section.page}" if section.page is not None else ""
    return Section(section.text, heading=f"attachment {name}{page}")
