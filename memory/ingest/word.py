"""Word documents (DOCX): headings, lists, tables, links, text boxes, notes, comments and formulas."""

from __future__ import annotations

import io
import warnings
import zipfile

from memory.chunking import Layout, Section
from memory.ingest import html, zipped
from memory.ingest.extract import Extract, Format, Job

_STYLES = "\n".join(
    (
        "comment-reference => sup",
        "p[style-name='Title'] => h1:fresh",
        "p[style-name='Subtitle'] => h2:fresh",
        "p[style-name='Source Code'] => pre:separator('\\n')",
        "p[style-name='HTML Preformatted'] => pre:separator('\\n')",
    )
)
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BODY = "word/document.xml"


def read(job: Job) -> Extract:
    """A DOCX file. It has no pages of its own: a passage is found by its heading."""
    import mammoth

    job.step("read", 0, 1)
    with zipped.opened(job.path, job.name) as archive:
        data = _with_formulas(archive)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            page = mammoth.convert_to_html(
                io.BytesIO(data),
                convert_image=mammoth.images.img_element(lambda image: {}),
                style_map=_STYLES,
                external_file_access=False,
            ).value
    except Exception as error:  # mammoth has no errors of its own: whatever a broken part makes it stumble over
        raise zipped.damaged(job.name) from error
    text = html.markdown(html.soup_of(page))
    job.step("read", 1, 1)
    return Extract(Format.WORD, (Section(text),), layout=Layout.MARKDOWN)


def _with_formulas(archive: zipfile.ZipFile) -> bytes:
    """The same archive with each formula as a run of its letters: mammoth leaves formulas out."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as copy:
        for member in archive.infolist():
            if member.filename.startswith("word/media/"):
                continue
            data = archive.read(member)
            if member.filename == _BODY and b"oMath" in data:
                data = _spelled(data)
            copy.writestr(member.filename, data)
    return out.getvalue()


def _spelled(data: bytes) -> bytes:
    from lxml import etree as xml

    parser = xml.XMLParser(resolve_entities=False, no_network=True)
    try:
        tree = xml.fromstring(data, parser)
    except xml.XMLSyntaxError:
        return data  # mammoth says what is wrong with it
    for formula in list(tree.iter(f"{_MATH}oMath")):
        run = xml.Element(f"{_WORD}r")
        text = xml.SubElement(run, f"{_WORD}t")
        text.text = "".join(part.text or "" for part in formula.iter(f"{_MATH}t"))
        run.tail = formula.tail
        parent = formula.getparent()
        if parent is None:
            continue
        if parent.tag == f"{_MATH}oMathPara" and (above := parent.getparent()) is not None:
            above.replace(parent, run) if len(parent) == 1 else above.insert(above.index(parent), run)
        else:
            parent.replace(formula, run)
    return bytes(xml.tostring(tree))
