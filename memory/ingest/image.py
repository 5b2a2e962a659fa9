"""Pictures of text: screenshots, photographs, scans."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from memory.chunking import Section
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.ocr import read_picture
from memory.ingest.parts import PageText, read_part
from memory.ingest.reading import OcrError, doubt
from memory.types import DamagedFileError, NoTextError, UnsupportedFileError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 100_000_000
_READ_PIXELS = 14_000_000
"""A larger picture is scaled down to this before it is read: A4 at 400 dpi."""
_SMALL = 1600
"""Longer side below which a picture is doubled: screen text is about 96 dpi, and Tesseract was trained at
300."""
_MAX_FRAMES = 2000


def read(job: Job) -> Extract:
    """A picture; each frame of a TIFF is a page. Raises IngestError when nothing in it can be read."""
    from PIL import Image, UnidentifiedImageError

    # Pillow warns on stderr between 90 and 180 megapixels; the limit below answers for those.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    try:
        with Image.open(job.path) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise UnsupportedFileError(
                    f"{job.name} has {picture.width * picture.height / 1e6:.0f} megapixels (the limit is "
                    f"{MAX_PIXELS // 1_000_000}): scale it down."
                )
            frames = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
            total = min(frames, _MAX_FRAMES)
            frame = _Frames(job, picture, total)
            small = _thumbnail(picture, job.thumbnail) if job.thumbnail and not job.pages else b""
            part = read_part(job, job.pages or range(1, total + 1), total, frame.begin)
    except Image.DecompressionBombError as error:
        raise UnsupportedFileError(
            f"{job.name} has more megapixels than can be read (the limit is {MAX_PIXELS // 1_000_000}): scale it down."
        ) from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DamagedFileError(f"{job.name} is a damaged picture ({error}): save it again.") from error
    found = part.sections if total > 1 else [replace(section, page=None) for section in part.sections]
    if small and not (found and found[0].page in (None, 1)):
        # What it shows may be all there is: it is found by that, and by its name.
        found.insert(0, Section(f"Picture: {job.name}", page=1 if total > 1 else None))
    if not found and not part.left and not job.pages:
        raise NoTextError(f"No text was found in {job.name}: only pictures of text can be read.")
    unread = part.warnings
    if frames > total and not part.left:
        unread.append(f"Only the first {total} of {frames} pages of {job.name} were read.")
    if frame.scaled:
        unread.append(f"{job.name} was scaled down to {_READ_PIXELS // 1_000_000} megapixels: small print may be lost.")
    return Extract(
        Format.IMAGE, tuple(found), total if total > 1 else None, tuple(unread), left=part.left, thumbnail=small
    )


class _Frames:
    """The pages of one picture."""

    def __init__(self, job: Job, picture: Image, total: int) -> None:
        self._job, self._picture, self._total = job, picture, total
        self.scaled = False
        """Whether one of them was larger than what is read."""

    def begin(self, number: int) -> Callable[[], PageText]:
        """Unpack a page; gives what reads it, on any thread."""
        if self._total > 1:
            self._picture.seek(number - 1)
        upright, scaled = _within_budget(prepare(self._picture))
        self.scaled = self.scaled or scaled
        return lambda: self._read(upright, number)

    def _read(self, upright: Image, number: int) -> PageText:
        name = self._job.name if self._total == 1 else f"Page {number} of {self._job.name}"
        try:
            seen = read_picture(upright, self._job.ocr_languages)
        except OcrError as error:
            if self._total == 1 and not self._job.thumbnail:
                raise
            return PageText("", None, f"{name} was not read. {error}")
        if self._total > 1 and not seen.text.strip():
            return PageText("", None, f"{name} has no readable text.")
        return PageText(seen.text, seen.confidence, doubt(name, seen))


def _thumbnail(picture: Image, side: int) -> bytes:
    """A small copy as JPEG, upright, on white."""
    from PIL import Image, ImageOps

    small = picture.copy()
    small.thumbnail((side, side))
    upright = ImageOps.exif_transpose(small).convert("RGBA")
    out = io.BytesIO()
    Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright).convert("RGB").save(
        out, "JPEG", quality=90
    )
    return out.getvalue()


def prepare(picture: Image) -> Image:
    """Upright, dark on white, large enough: what Tesseract reads best."""
    from PIL import Image, ImageOps, ImageStat

    upright = ImageOps.exif_transpose(picture)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        rgba = upright.convert("RGBA")
        ink = ImageStat.Stat(rgba.convert("L"), mask=rgba.getchannel("A")).mean[0]
        ground = Image.new("RGBA", rgba.size, "black" if ink > 127 else "white")
        upright = Image.alpha_composite(ground, rgba)
    grey = upright.convert("L")
    if ImageStat.Stat(grey).median[0] < 110:
        grey = ImageOps.invert(grey)
    if max(grey.size) < _SMALL:
        grey = grey.resize((grey.width * 2, grey.height * 2), Image.Resampling.LANCZOS)
    return grey


def _within_budget(picture: Image) -> tuple[Image, bool]:
    """The picture, scaled down where it is larger than what is read, and whether it was."""
    from PIL import Image

    pixels = picture.width * picture.height
    if pixels <= _READ_PIXELS:
        return picture, False
    factor = (_READ_PIXELS / pixels) ** 0.5
    size = (max(1, int(picture.width * factor)), max(1, int(picture.height * factor)))
    return picture.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0), True
