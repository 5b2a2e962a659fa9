"""Take the skew out of a scanned page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDE = 1200
"""The Hough transform sees a page's lines at about 100 dpi as well, in a third of a second."""
_STEP = 0.25
_LEAST, _MOST = 0.3, 20.0
"""Degrees. A turn by less blurs more than it helps; beyond it the lines seen are seldom those of text."""


def straighten(picture: Image) -> Image:
    """A grey picture with its lines of text level (or on end: quarter turns are no skew), by the Hough transform of
    the deskew library."""
    angle = skew(picture)
    if not _LEAST <= abs(angle) <= _MOST:
        return picture
    from PIL import Image

    return picture.rotate(angle, resample=Image.Resampling.BICUBIC, expand=True, fillcolor="white")


def skew(picture: Image) -> float:
    """Degrees counter-clockwise by which the lines of a grey picture must be turned; 0 when there are no lines."""
    import numpy as np
    from deskew import determine_skew

    small = picture.copy()
    small.thumbnail((_SIDE, _SIDE))
    if min(small.size) < 16:
        return 0.0
    try:
        angle = determine_skew(np.asarray(small.convert("L")), min_deviation=_STEP)
    except (ValueError, IndexError) as error:  # a picture without an edge
        logging.getLogger(__name__).debug("no skew: %s", error)
        return 0.0
    return float(angle) if angle is not None else 0.0
