"""Vectors of pictures and of what people say of them, in one space: a CLIP-style sentence-transformers model, when the
person has one."""

from __future__ import annotations

import hashlib
import io
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory.embed import Vectors
from memory.types import RecallError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

THUMBNAIL = 448
"""Longer side of what is kept of a picture, in pixels: these models look at 224 to 384."""
_PLAIN = ("a picture", "a photo", "a screenshot", "a page of text")
"""What can be said of any picture: a question must fit one better than this."""
_SHARPNESS = 100.0
"""What CLIP multiplies its cosines by before it compares them (Radford et al. 2021)."""


class PictureModel:
    """Loaded when first needed. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Checks the files only. Raises RecallError when `folder` holds no model."""
        self._folder = folder
        self.id = _identity(folder)
        self._model: SentenceTransformer | None = None
        self._plain: Vectors | None = None
        self._loading = threading.Lock()

    def load(self) -> SentenceTransformer:
        """The model, read once. Raises RecallError when it is damaged or reads no pictures."""
        with self._loading:
            if self._model is None:
                from sentence_transformers import SentenceTransformer

                try:
                    model = SentenceTransformer(str(self._folder), device="cpu", local_files_only=True)
                except Exception as error:  # the libraries under it raise what they like
                    raise RecallError(
                        f"The image embedder in {self._folder} could not be loaded ({error}): fetch it again."
                    ) from error
                if "image" not in model.modalities or "text" not in model.modalities:
                    raise RecallError(
                        f"The image embedder in {self._folder} does not read both pictures and text: "
                        "choose a CLIP model."
                    )
                self._plain = _normal(model.encode(list(_PLAIN), show_progress_bar=False))
                self._model = model
            return self._model

    def picture(self, image: bytes) -> Vectors:
        """Vector of a picture, shape [dimension]. `image` is a file's bytes as `thumbnail` makes them."""
        from PIL import Image

        with Image.open(io.BytesIO(image)) as opened:
            return _normal(self.load().encode([opened.convert("RGB")], show_progress_bar=False)).reshape(-1)

    def question(self, text: str) -> Vectors:
        """Vector of what a picture shows, shape [dimension]."""
        return _normal(self.load().encode([text], show_progress_bar=False)).reshape(-1)

    def sureness(self, question: Vectors, picture: Vectors) -> float:
        """How much better a question fits a picture than what can be said of any, 0..1. Its bare cosine says little:
        0.2 and 0.3 are far apart with one model, and all there is with another."""
        assert self._plain is not None
        ahead = float(question @ picture) - float((self._plain @ picture).max())
        return float(1.0 / (1.0 + np.exp(-_SHARPNESS * ahead)))


def _normal(vectors: object) -> Vectors:
    rows: Vectors = np.asarray(vectors, dtype=np.float32)
    normal: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return normal


def _identity(folder: Path) -> str:
    if not (folder / "modules.json").is_file():
        raise RecallError(
            f"There is no image embedder in {folder}: choose a sentence-transformers folder of a CLIP model."
        )
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".json":
            digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
        elif file.suffix in (".safetensors", ".bin"):
            digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}".encode())
    return digest.hexdigest()[:32]
