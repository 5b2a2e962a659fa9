"""Texts are shared out to threads: in order, the same as alone, and a question does not wait for them."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from memory.embed import BATCH, Embedder, Vectors

WHAT = ("violin", "dentist", "volcano", "invoice", "penguin", "theorem", "ferry")
WHERE = ("is in Lisbon", "was sold in 1823", "sleeps at noon", "costs nine euros", "failed the test")


@pytest.fixture(scope="module")
def two(embedder_folder: Path) -> Embedder:
    return Embedder(embedder_folder, threads=2)


def test_vectors_come_in_order_whatever_thread_made_them(two: Embedder) -> None:
    texts = [f"The {what} {where}." for what in WHAT for where in WHERE]
    batches = list(two.passages(texts))
    assert [len(batch) for batch in batches] == [BATCH, BATCH, 3]
    together = np.concatenate(batches)
    for number in (0, BATCH - 1, BATCH, 2 * BATCH, 2 * BATCH + 2):
        alone = next(two.passages([texts[number]]))[0]
        assert int(np.argmax(together @ alone)) == number
        assert float(together[number] @ alone) > 0.99  # in 8 bits the batch has a say
    assert list(two.passages([])) == []


def test_a_question_is_answered_while_every_thread_is_at_work(two: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    model = two.load()
    at_work, asked = threading.Barrier(3), threading.Event()
    encode = model.encode_document

    def slow(texts: list[str], **options: object) -> Vectors:
        at_work.wait(60)
        assert asked.wait(60)
        return encode(texts, **options)

    monkeypatch.setattr(model, "encode_document", slow)
    made: list[Vectors] = []
    ingestion = threading.Thread(target=lambda: made.extend(two.passages(["word"] * 2 * BATCH)))
    ingestion.start()
    at_work.wait(60)
    assert two.question("What is said?").shape == (two.dimension,)
    asked.set()
    ingestion.join()
    assert [len(batch) for batch in made] == [BATCH, BATCH]


def test_an_ingestion_that_is_left_takes_its_waiting_batches_along(two: Embedder) -> None:
    before = threading.active_count()
    batches = two.passages([f"Boat {number}" for number in range(20 * BATCH)])
    next(batches)
    batches.close()
    assert threading.active_count() == before


def test_an_error_of_a_thread_reaches_the_caller(two: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(texts: list[str], **options: object) -> Vectors:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(two.load(), "encode_document", broken)
    with pytest.raises(RuntimeError, match="no kernel"):
        list(two.passages(["a"]))
