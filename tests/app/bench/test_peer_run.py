"""A peer's chat: nothing is evaluated twice, and what does not fit goes, the oldest first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.bench.peers import run
from app.bench.peers.run import Chat, Transformers
from tests.engine.tiny import write_llama


@pytest.fixture(autouse=True, scope="module")
def torch_as_it_was() -> Iterator[None]:
    """A peer has a process to itself and sets torch up for all of it; here others come after it."""
    gradients, threads = torch.is_grad_enabled(), torch.get_num_threads()
    yield
    torch.set_grad_enabled(gradients)
    torch.set_num_threads(threads)


class Letters:
    """A backend whose tokens are letters, and that knows what it was fed."""

    name, version = "letters", "1"

    def __init__(self) -> None:
        self.cache: list[int] = []
        self.fed: list[int] = []

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        return self.plain("".join(f"<{m['role'][0]}{m['content']}>" for m in messages) + "<a")

    def plain(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def keep(self, count: int) -> int:
        assert count <= len(self.cache)
        del self.cache[count:]
        return count

    def feed(self, tokens: list[int]) -> None:
        assert tokens
        self.cache += tokens
        self.fed.append(len(tokens))


exchanges = st.lists(st.tuples(st.text("ab", min_size=1, max_size=9), st.text("cd", min_size=1, max_size=20)))


@given(exchanges, st.integers(60, 200))
def test_the_cache_is_always_the_chat_as_far_as_it_fits(some: list[tuple[str, str]], window: int) -> None:
    backend = Letters()
    chat = Chat(backend, window, "sys")
    for question, answer in some:
        backend.fed.clear()
        before = list(backend.cache)
        read, _, _ = chat.turn({"question": question, "answer": answer, "new": 4})
        assert len(backend.cache) <= window
        text = "".join(map(chr, backend.cache))
        assert text.startswith("<ssys>")
        assert text.endswith(f"<u{question}><a{answer}")
        prompt = backend.cache[: len(backend.cache) - len(answer)]
        pairs = enumerate(zip(before, prompt, strict=False))
        same = next((n for n, (held, new) in pairs if held != new), min(len(before), len(prompt)))
        assert backend.fed[0] == read == len(prompt) - min(same, len(prompt) - 1)
        assert backend.fed[1 : 1 + min(4, len(answer))] == [1] * min(4, len(answer))


def test_while_it_fits_only_what_is_new_is_read_and_afterwards_all_but_the_beginning() -> None:
    backend = Letters()
    chat = Chat(backend, 60, "sys")
    reads = [int(chat.turn({"question": f"ab{n}", "answer": "c" * 10, "new": 2})[0]) for n in range(4)]
    assert reads[0] == len("<ssys><uabc><a")
    assert reads[1] == len("><uabc><a")
    # The oldest has gone: from its number on the prompt is another than the cache.
    assert reads[3] > reads[1]


def test_a_cache_that_cannot_be_cut_is_filled_anew() -> None:
    class Uncut(Letters):
        def keep(self, count: int) -> int:
            return super().keep(count if count == len(self.cache) else 0)

    backend = Uncut()
    chat = Chat(backend, 60, "sys")
    reads = [int(chat.turn({"question": f"ab{n}", "answer": "c" * 10, "new": 2})[0]) for n in range(4)]
    assert reads[:2] == [len("<ssys><uabc><a"), len("><uabc><a")]
    assert reads[3] == len(backend.cache) - 10


def test_a_turn_that_can_never_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="does not fit a window of 30"):
        Chat(Letters(), 30, "sys").turn({"question": "a", "answer": "c" * 40, "new": 2})


def test_speeds_are_of_a_prompt_that_is_read_from_nothing() -> None:
    backend = Letters()
    chat = Chat(backend, 100, "sys")
    for _ in range(2):
        tokens, read, each = chat.speeds({"prompt": "abc", "answer": "cdcdcd", "new": 3})
        assert (tokens, read > 0, each > 0) == (len("<ssys><uabc><a"), True, True)
    assert backend.fed == [tokens, 1, 1, 1] * 2


def test_transformers_evaluates_after_what_is_kept(tmp_path: Path) -> None:
    write_llama(tmp_path)
    options = {"model": str(tmp_path), "threads": 1, "device": "cpu", "dtype": "float32"}
    backend = Transformers(options)
    chat = Chat(backend, 120, "sys")
    for question in ("first", "second", "third"):
        chat.turn({"question": question, "answer": "an answer of some letters", "new": 3})
        assert backend._cache.get_seq_length() == len(chat._held) <= 120
    fresh = Transformers(options)
    fresh.feed(chat._held)
    for ours, theirs in zip(backend._cache.layers, fresh._cache.layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(ours.values, theirs.values, atol=1e-5, rtol=1e-4)


def test_what_a_peer_cannot_do_is_told_in_its_own_words(tmp_path: Path) -> None:
    """Run as the benchmark runs it, by a path and not as a module."""
    options = json.dumps({"model": str(tmp_path), "threads": 1, "device": "cpu", "dtype": "float32"})
    done = subprocess.run([sys.executable, run.__file__, "transformers", options], input=b"", stdout=subprocess.PIPE)
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["error"]
