"""How long recall takes with 20,000 and with 200,000 stored chunks, embedding the question included.

The chunks' words are real: sentences of the question sets, shuffled, through the lexical index like any other text.
Their vectors are random directions, for embedding 200,000 texts would take hours; the questions' are the embedder's.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock

from memory import Memory
from memory.embed import Embedder, Vectors
from memory.ingest.readers import read_file
from memory.passages import NewPassage
from memory.store import Store
from memory.types import Passage, PassageId, Place, RecallRequest, Source, SourceId, SourceKind
from tests.bench.recall import documents, locomo
from tests.bench.report import percentile
from tests.models import embedder_folder

SIZES = {"20k": 20_000, "200k": 200_000}
_ASKED = 150
_WARM = 10
_SOURCE_SIZE = 500
"""Chunks of one document or chat."""


class RandomVectors(Embedder):
    """The shipped embedder for questions; passages get random directions of length 1."""

    def passages(self, texts: Sequence[str]) -> Iterator[Vectors]:
        """Random rows, [n, dimension], all at once: nothing waits for them here."""
        rows = np.random.default_rng(len(texts)).standard_normal((len(texts), self.dimension), dtype=np.float32)
        yield rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measure(folder: Path) -> dict[str, float]:
    """Fill to each size in turn and ask real questions."""
    sentences, questions = _material(folder)
    if not sentences or not questions:
        print("latency: skipped, no question set to take texts from.")
        return {}
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="recall-bench-") as made:
        memory_folder = Path(made)
        embedder = RandomVectors(embedder_folder(), threads=2)
        store = Store(memory_folder, embedder, None)
        lock = FileLock(memory_folder / "memory.lock")
        lock.acquire()
        memory = Memory(memory_folder, store, embedder, lock, "eng", read_file)
        store.wait_until_complete()
        shuffled = random.Random(1)
        stored = 0
        for name, size in SIZES.items():
            began = time.perf_counter()
            while stored < size:
                _fill(store, stored, sentences, shuffled)
                stored += _SOURCE_SIZE
            print(f"\n{stored} chunks stored; the last in {time.perf_counter() - began:.0f} s")
            figures[f"recall_p95_ms_{name}"] = _p95(memory, questions)
        memory.close()
    return figures


def _p95(memory: Memory, questions: Sequence[str]) -> float:
    chosen = random.Random(2).sample(questions, min(_ASKED, len(questions)))
    for question in chosen[:_WARM]:
        _seconds(memory, question)
    seconds = [_seconds(memory, question) for question in chosen]
    p50, p95 = (1000 * percentile(seconds, percent) for percent in (50, 95))
    slowest = max(zip(seconds, chosen, strict=True))
    print(f"recall: half below {p50:.1f} ms, 95 % below {p95:.1f} ms; slowest {slowest[0] * 1000:.0f}: {slowest[1]}")
    return p95


def _seconds(memory: Memory, question: str) -> float:
    began = time.perf_counter()
    memory.recall(RecallRequest(question, SourceId("asking")), lambda text: len(text) // 4)
    return time.perf_counter() - began


def _material(folder: Path) -> tuple[list[list[str]], list[str]]:
    """Sentences by where they come from, and questions about them."""
    kinds: list[list[str]] = []
    questions: list[str] = []
    for name in (documents.CMRC, documents.XQUAD):
        if (folder / name).is_file():
            data = json.loads((folder / name).read_text(encoding="utf-8"))["data"]
            paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
            kinds.append([s for p in paragraphs for s in re.split(r"(?<=[.。!?])\s*", p["context"]) if len(s) > 8])
            questions += [asked["question"] for p in paragraphs for asked in p["qas"]]
    if (folder / locomo.FILE).is_file():
        samples = json.loads((folder / locomo.FILE).read_text(encoding="utf-8"))
        kinds.append([m.text for s in samples for m in locomo.messages_of(s["conversation"], "chat")])
        questions += [asked["question"] for sample in samples for asked in sample["qa"]]
    return kinds, questions


def _fill(store: Store, first: int, kinds: Sequence[Sequence[str]], shuffled: random.Random) -> None:
    """Store one source of `_SOURCE_SIZE` chunks: chats and documents by turns."""
    chat = (first // _SOURCE_SIZE) % 2 == 0
    source = Source(SourceId(f"source-{first}"), SourceKind.CHAT if chat else SourceKind.DOCUMENT, f"Source {first}")
    sentences = shuffled.choice(kinds)
    new: list[NewPassage] = []
    for number in range(_SOURCE_SIZE):
        text = " ".join(shuffled.choices(sentences, k=1 if chat else 5))
        message = f"{source.id}-{number}" if chat else None
        identifier = PassageId(hashlib.sha256(f"{source.id} {number}".encode()).hexdigest()[:32])
        role = ("user", "assistant")[number % 2] if chat else None
        passage = Passage(identifier, source, Place(message=message), number, 1.7e9 + first + number, text, role)
        new.append(NewPassage(passage, parent=f"{source.id}-{number - 1}" if chat and number else None))
    store.put(source, 1.7e9 + first, new)
    store.index([item.passage.id for item in new])
