"""Vectors of texts: a sentence-transformers model from a local folder, on the CPU, loaded when first
needed."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memory.types import RecallError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

Vectors = npt.NDArray[np.float32]
"""[n, dimension], each row of length 1."""

BATCH = 16
"""Passages embedded between two chances for a question to go first: about half a second on two cores."""
_FORWARD = 4
"""Passages in one pass of the model: their activations stay in the processor's cache."""
_NUMERICS = b"8 bits, a scale for each token"
"""Part of an embedder's identity: when it changes, every vector is made again."""
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_PROBE = "我们昨天讨论了数据库的索引结构，并决定在下个星期测试缓存的性能。"


class Embedder:
    """One embedding model. Questions overtake the batches of a running ingestion."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Checks the files only; `load` reads the weights. Raises RecallError when `folder` holds no
        model."""
        self._folder = folder
        self._threads = threads
        self.id = _identity(folder)
        self.tokenizer: Tokenizer = _tokenizer(folder)
        self._model: SentenceTransformer | None = None
        self.in_eight_bits = False
        """Whether its layers are held in 8 bits (eight_bits.py); known once it is loaded."""
        self._loading = threading.Lock()
        # A reader takes `_next` before `_busy`: one batch at most stands between a question and the model.
        self._next = threading.Lock()
        self._busy = threading.Lock()

    @property
    def name(self) -> str:
        """The folder's name, for people."""
        return self._folder.name if self._folder.name != "model" else self._folder.parent.name

    @property
    def dimension(self) -> int:
        """Components of a vector; loads the model."""
        size = self.load().get_embedding_dimension()
        if size is None:
            raise RecallError(f"The embedder in {self._folder} does not say how long its vectors are: choose another.")
        return int(size)

    def load(self) -> SentenceTransformer:
        """The model, read once. Raises RecallError when its files are damaged."""
        with self._loading:
            if self._model is None:
                os.environ.setdefault("HF_HUB_OFFLINE", "1")
                os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
                os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
                import torch
                from sentence_transformers import SentenceTransformer
                from transformers.utils import logging

                logging.disable_progress_bar()
                torch.set_num_threads(self._threads)
                try:
                    self._model = SentenceTransformer(str(self._folder), device="cpu", local_files_only=True)
                except (OSError, ValueError, KeyError, RuntimeError) as error:
                    raise RecallError(
                        f"The embedder in {self._folder} could not be loaded ({error}): fetch it again."
                    ) from error
                from memory.eight_bits import in_eight_bits

                self.in_eight_bits = in_eight_bits(self._model)
            return self._model

    def passages(self, texts: Sequence[str]) -> Iterator[Vectors]:
        """Vectors of stored texts, batch by batch."""
        model = self.load()
        for first in range(0, len(texts), BATCH):
            with self._turn():
                batch = _float32(model.encode_document(list(texts[first : first + BATCH]), **_ENCODE))
            # Outside the turn: while the caller stores this batch, questions may use the model.
            yield batch

    def question(self, text: str) -> Vectors:
        """Vector of one query, shape [dimension]; waits for one batch at most."""
        model = self.load()
        with self._turn():
            return _float32(model.encode_query(text, **_ENCODE))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        # The holder of `_next` is the next in line, so a loop over batches cannot overtake a waiting
        # question.
        with self._next:
            self._busy.acquire()
        try:
            yield
        finally:
            self._busy.release()

    def reads_unspaced_scripts(self) -> bool:
        """Whether the tokenizer was made for Chinese: few unknown pieces, and not several bytes for a
        character.

        all-MiniLM-L6-v2 finds 13.1 % of CMRC2018's paragraphs first where bigrams find 95.7 %: such an
        embedder must have no say about Chinese text.
        """
        encoding = self.tokenizer.encode(_PROBE, add_special_tokens=False)
        unknown = sum(1 for token in encoding.tokens if token in ("[UNK]", "<unk>"))
        return unknown / len(encoding.tokens) < 0.05 and len(encoding.tokens) < 1.5 * len(_PROBE)


_ENCODE = {"normalize_embeddings": True, "show_progress_bar": False, "batch_size": _FORWARD}


def _float32(vectors: object) -> Vectors:
    return np.asarray(vectors, dtype=np.float32)


def _tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the tokenizers library raises a bare Exception
        raise RecallError(f"The embedder's tokenizer.json in {folder} is damaged ({error}): fetch it again.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _identity(folder: Path) -> str:
    """Hash of what decides the vectors: the small configuration files, the weights' sizes, how they are computed."""
    if not (folder / "modules.json").is_file() or not (folder / "tokenizer.json").is_file():
        raise RecallError(
            f"There is no embedder in {folder}: fetch the starter embedder, or choose a sentence-transformers folder."
        )
    weights = sorted(file for pattern in _WEIGHTS for file in folder.rglob(pattern))
    if not weights:
        raise RecallError(f"The embedder in {folder} has no weights: fetch it again.")
    digest = hashlib.sha256(_NUMERICS)
    for file in sorted(folder.rglob("*.json")):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    for file in weights:
        digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}".encode())
    return digest.hexdigest()[:32]
