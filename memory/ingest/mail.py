"""E-mail (.eml): who wrote to whom about what, the text, and every attachment that can be read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from email import policy
from email.message import Message, MIMEPart
from email.parser import BytesParser
from pathlib import Path
from typing import Any, Literal, cast

from memory.chunking import Layout, Section
from memory.ingest import html
from memory.ingest.encoding import decode
from memory.ingest.extract import Extract, Format, Job, Reader
from memory.types import DamagedFileError, IngestCancelledError, IngestError, UnsupportedFileError

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MOST_NESTED = 3
"""Mails attached to mails."""
_MOST_PARTS = 200
_FAULTS = (ValueError, LookupError, AttributeError, TypeError, RecursionError)


class _AnyHeader(policy.EmailPolicy):
    """Also reads header lines whose bytes are in a code page, which no standard allows and many old mails have."""

    charset: str = ""
    """That of the letter: most likely the header's as well."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        if not value.isascii():
            value = _text(value.encode("utf-8", "surrogateescape"), "utf-8", self.charset)
        return super().header_fetch_parse(name, value)


def _text(data: bytes, *charsets: str) -> str:
    """The text of bytes in the first of `charsets` that fits, or in whatever encoding they seem to be."""
    for charset in charsets:
        try:
            return data.decode(_MEANT.get(charset, charset))
        except (LookupError, ValueError):  # no name of any encoding, or not the encoding that it names
            continue
    try:
        return decode(data, "")
    except UnsupportedFileError:
        return data.decode("cp1252", "replace")


_MEANT = {"gb2312": "gb18030", "iso-8859-1": "cp1252"}
"""What writers of mails mean by names that are too narrow."""


def read(job: Job, attachment: Reader, depth: int = 0) -> Extract:
    """A message. `attachment` reads whatever hangs on it; one that cannot be read is a warning."""
    job.step("read", 0, 1)
    try:
        message = cast(MIMEPart, BytesParser(policy=_AnyHeader()).parsebytes(job.path.read_bytes()))
        body = _body(message)
        if body is not None:
            message.policy = _AnyHeader().clone(charset=body.get_content_charset(""))  # type: ignore[call-arg]
        head = "\n".join(f"{name}: {message[name]}" for name in _HEADERS if message[name])
        text = _shown(body) if body is not None else ""
        hanging = [(_name(part, number), part) for number, part in enumerate(_hanging(message, body), start=1)]
    except _FAULTS as error:
        raise DamagedFileError(f"{job.name} is no whole e-mail ({type(error).__name__}): save it again.") from error
    if not head:
        raise DamagedFileError(f"{job.name} is no e-mail, or it is damaged: it has no sender and no subject.")
    sections = [Section(f"{head}\n\n{text}".strip(), heading=str(message["Subject"] or ""))]
    warnings: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, part) in enumerate(hanging):
            if number >= _MOST_PARTS or depth >= _MOST_NESTED:
                warnings.append(f"The attachments of {job.name} from {name} on were not read: there are too many.")
                break
            try:
                file = Path(folder, str(number))
                file.write_bytes(_data(part))
                inner = Job(file, name, job.ocr_languages, job.on_progress, job.cancelled)
                seen = read(inner, attachment, depth + 1) if name.lower().endswith(".eml") else attachment(inner)
            except IngestCancelledError:
                raise
            except (IngestError, *_FAULTS) as error:
                why = error if isinstance(error, IngestError) else f"{name} is damaged ({type(error).__name__})."
                warnings.append(f"An attachment of {job.name} was not read. {why}")
                continue
            sections += [_within(section, name) for section in seen.sections]
            warnings += seen.warnings
            if seen.left:
                warnings.append(
                    f"{len(seen.left)} of the {seen.pages} pages of {name} in {job.name} were not read: "
                    "save the attachment and name it."
                )
    job.step("read", 1, 1)
    return Extract(Format.MAIL, tuple(sections), warnings=tuple(warnings), layout=Layout.MARKDOWN)


def _body(message: MIMEPart) -> MIMEPart | None:
    """The part that is the letter: its plain text, or its page where the plain text is left blank."""
    kinds: tuple[Literal["plain", "html"], ...] = ("plain", "html")
    parts = [part for kind in kinds if (part := message.get_body((kind,))) is not None]
    if not parts and message.get_content_maintype() == "multipart" and not message.is_multipart():
        parts = [message]  # the line between its parts is missing: all that is there
    said = (part for part in parts if _shown(part).strip())
    return next(said, parts[0] if parts else None)


def _shown(part: MIMEPart) -> str:
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    text = _text(data, part.get_content_charset(""))
    return html.markdown(html.soup_of(text)) if part.get_content_subtype() == "html" else text


def _hanging(part: MIMEPart, body: MIMEPart | None) -> Iterator[MIMEPart]:
    """Every part that is neither the letter nor the same letter in another format, at any depth."""
    if part.get_content_maintype() != "multipart":
        if part is not body:
            yield part
        return
    other = part.get_content_type() == "multipart/alternative"
    for inner in part.iter_parts():
        if not (other and inner.get_content_maintype() == "text" and not inner.is_attachment() and inner is not body):
            yield from _hanging(inner, body)


def _name(part: MIMEPart, number: int) -> str:
    name = Path(part.get_filename() or "").name or f"attachment {number}"
    if part.get_content_type() == "message/rfc822" and not name.lower().endswith(".eml"):
        return f"{name}.eml"
    return name


def _data(part: MIMEPart) -> bytes:
    """The bytes of an attachment. A mail within a mail may be encoded like any other, though no standard allows it:
    the parser takes the letters of its encoding for its text."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload(0)
        assert isinstance(inner, Message)
        encoding = str(part.get("Content-Transfer-Encoding", "")).strip().lower()
        if encoding not in ("base64", "quoted-printable") or inner.keys():
            return inner.as_bytes(policy=policy.compat32)
        carrier = Message()
        carrier["Content-Transfer-Encoding"] = encoding
        carrier.set_payload(inner.get_payload())
        part = carrier  # type: ignore[assignment]
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _within(section: Section, name: str) -> Section:
    """A section of an attachment, which says so; its page is the attachment's, not the mail's."""
    page = f", page {section.page}" if section.page is not None else ""
    heading = " › ".join(part for part in (f"attachment {name}{page}", section.heading) if part)
    return replace(section, page=None, start=0, heading=heading)
