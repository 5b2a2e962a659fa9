"""RapidOCR (PP-OCR models, inside its wheel): the better reader of Chinese and Japanese, of screenshots and of
photographs, and the only one where Tesseract is not installed."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.ingest.layout import Box, in_reading_order, mostly_on_end
from memory.ingest.reading import OcrError, OcrText, is_cjk

if TYPE_CHECKING:
    from PIL.Image import Image

_THREADS = 2
_GUESS = 0.5
"""Line score below which letters are read into noise."""
_DOUBTFUL = 88.0
"""Mean line score below which a page may be upside down."""
_ONE_AT_A_TIME = threading.Lock()


def recognise(picture: Image) -> OcrText:
    """Read a picture however it is turned. Raises OcrError.

    A page that is upside down or on its side is turned as a whole, by how sure the reader then is: turned line by
    line, as the library offers, its lines would come last to first.
    """
    reading, on_end = _read(picture)
    turns: tuple[int, ...] = ()
    if on_end and not is_cjk(reading.text):
        turns = (90, 270)
    elif 0 < reading.confidence < _DOUBTFUL:
        turns = (180,)
    others = [_read(picture.rotate(angle, expand=True))[0] for angle in turns]
    return max([reading, *others], key=lambda one: one.confidence)


def _read(picture: Image) -> tuple[OcrText, bool]:
    """What was read, and whether most lines stand on end."""
    import numpy as np

    with _ONE_AT_A_TIME:
        engine = _engine()
        try:
            found = engine(np.asarray(picture.convert("RGB")))
        except Exception as error:  # OpenCV, onnxruntime and RapidOCR each have types of their own
            raise OcrError(f"RapidOCR could not read it ({_short(error)}): try a clearer picture.") from error
    if found.boxes is None or found.txts is None or found.scores is None:
        return OcrText("", 0.0), False
    boxes: list[Box] = []
    scores: list[float] = []
    for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True):
        if text.strip() and float(score) >= _GUESS:
            (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
            boxes.append(Box(float(left), float(top), float(right), float(bottom), text.strip()))
            scores.append(100.0 * float(score))
    confidence = sum(scores) / len(scores) if scores else 0.0
    return OcrText(in_reading_order(boxes), confidence), mostly_on_end(boxes)


@lru_cache(maxsize=1)
def _engine() -> Any:
    """The engine with the models of its own wheel only: a missing one is an error, never a download."""
    try:
        import rapidocr
    except ImportError as error:
        raise OcrError(f"RapidOCR cannot be loaded ({_short(error)}): reinstall aios-chat.") from error
    models = Path(rapidocr.__file__).parent / "models"
    try:
        det, cls, rec = (next(models.glob(f"*{part}*.onnx")) for part in ("_det_", "_cls_", "_rec_"))
    except StopIteration as error:
        raise OcrError("RapidOCR's models are not in its package: reinstall aios-chat.") from error
    return rapidocr.RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.text_score": _GUESS,
            "Global.use_cls": False,
            "Det.model_path": str(det),
            "Cls.model_path": str(cls),
            "Rec.model_path": str(rec),
            "EngineConfig.onnxruntime.intra_op_num_threads": _THREADS,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
