"""Vectors of texts: a sentence-transformers model from a local folder, on the CPU, loaded when first
needed."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
"""Passages that one thread embeds before it looks for the next ones: half a second."""
_FORWARD = 4
"""Passages in one pass of the model: their activations stay in the processor's cache."""
_NUMERICS = b"8 bits, a scale for each token"
"""Part of an embedder's identity: when it changes, every vector is made again."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of glibc's mallopt."""
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_LIMITS = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)
_PROBE = "我们昨天讨论了数据库的索引结构，并决定在下个星期测试缓存的性能。"


class Embedder:
    """One embedding model. A running ingestion works through its batches on `threads` threads, each a batch of its own;
    a question does not wait for them, but runs beside them."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Checks the files only; `load` reads the weights. Raises RecallError when `folder` holds no
        model."""
        self._folder = folder
        self._threads = threads
        self.id = _identity(folder)
        self.tokenizer: Tokenizer = _tokenizer(folder)
        self.limit = _limit(folder)
        """Tokens of a text that it reads."""
        self._model: SentenceTransformer | None = None
        self.in_eight_bits = False
        """Whether its layers are held in 8 bits (eight_bits.py); known once it is loaded."""
        self._loading = threading.Lock()

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
                # Texts are shared out to threads instead: several threads for one text wait for each other after each
                # step, and they spin while they wait.
                torch.set_num_threads(1)
                _keep_freed_memory()
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
        """Vectors of stored texts, batch by batch, in order. The next batches are made while the caller stores one."""
        model = self.load()

        def embed(first: int) -> Vectors:
            return _float32(model.encode_document(list(texts[first : first + BATCH]), **_ENCODE))

        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="embed")
        try:
            waiting = deque[Future[Vectors]]()
            for first in range(0, len(texts), BATCH):
                waiting.append(pool.submit(embed, first))
                if len(waiting) > self._threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def question(self, text: str) -> Vectors:
        """Vector of one query, shape [dimension]."""
        return _float32(self.load().encode_query(text, **_ENCODE))

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


def _keep_freed_memory() -> None:
    """Have the C library keep what a step of the model frees for the next step. Given back to the kernel and taken
    again it costs 1,100 page faults a passage, and 7 % of the time. Where it is another library nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, 32 << 20)
            library.mallopt(_TRIM_THRESHOLD, 256 << 20)


def _tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the tokenizers library raises a bare Exception
        raise RecallError(f"The embedder's tokenizer.json in {folder} is damaged ({error}): fetch it again.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _limit(folder: Path) -> int:
    """What the model's own files say of the tokens that it reads; those of BERT's small ones where they say nothing."""
    for name, field in _LIMITS:
        for file in (folder / name, *sorted(folder.glob(f"0_*/{name}"))):
            try:
                limit = json.loads(file.read_text(encoding="utf-8")).get(field)
            except (OSError, ValueError, AttributeError):
                continue
            if isinstance(limit, int) and 16 <= limit <= 1_000_000:
                return limit
    return 256


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
