"""Our own side, in the engine's own process with a tiny model; and which peers a machine has."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from app.bench.ours import ROUNDS, Ours, per_second, plan
from app.bench.peer import LLAMA_VARIABLE, Peer, PeerError, PeerOptions, Unpacked, find_peers, running
from app.bench.prose import sentences, text
from app.bench.report import Turn
from app.host import wire
from app.host.host import Host
from tests.engine.tiny import write_llama

WINDOW = 2048
POLICIES = ["round-robin", "truncate"]
OPTIONS = PeerOptions("no model", 1, WINDOW, "cpu", "float32", "s")
FITS = Unpacked(1000, "float32", 4000)


@asynccontextmanager
async def started(tmp_path: Path, policy: str, window: int) -> AsyncIterator[Host]:
    write_llama(tmp_path / "tiny")
    host = Host(tmp_path / "logs", lambda *_: None, lambda *_: None, lambda *_: None)
    options = wire.EngineOptions(
        model=str(tmp_path / "tiny"),
        quota_tokens=window,
        page_size=16,
        kv_format="auto",
        policy=policy,
        sessions=2,
        device="cpu",
        threads=1,
        tokenizer_file=str(tmp_path / "tokenizer.json"),
        host_bytes=1 << 24,
        guess_tokens=0,
    )
    await host.start_engine(options, lambda _: None)
    try:
        yield host
    finally:
        await host.stop()


@pytest_asyncio.fixture(params=POLICIES)
async def host(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    async with started(tmp_path, request.param, WINDOW) as host:
        yield host


async def test_the_chat_is_the_plans_and_outgrows_the_window(host: Host) -> None:
    ours, turns, rounds = Ours(host, "s"), list[Turn](), list[int]()
    per_sentence = await ours.tokens_per_sentence()
    texts = plan(per_sentence, WINDOW, 6)
    assert per_sentence == pytest.approx(len(text(1, 12)) / 12, rel=0.02)  # every byte is a token
    speeds = await ours.speeds(texts, rounds.append)
    assert rounds == list(range(1, ROUNDS + 1))
    assert 900 < speeds.prompt_tokens < 1100
    assert speeds.short_prompt_tokens < speeds.prompt_tokens / 2
    await ours.chat(texts, turns.append)
    assert [turn.number for turn in turns] == [1, 2, 3, 4, 5, 6]
    assert turns[-1].chat_tokens > WINDOW > turns[1].chat_tokens
    said = [len(exchange.question) + len(exchange.answer) for exchange in texts.turns]
    assert all(WINDOW // 8 < size < WINDOW // 3 for size in said)
    for turn, before, size in zip(turns[1:], turns[:-1], said[1:], strict=True):
        assert size <= turn.chat_tokens - before.chat_tokens <= size + 60
        assert turn.first_token_seconds > 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("letters", [17, 1600])
async def test_a_sentence_takes_what_it_takes_after_any_system_prompt(
    tmp_path: Path, policy: str, letters: int
) -> None:
    """A byte is a token, a page 16 of them; what the first question read of the system prompt is found by the next."""
    async with started(tmp_path, policy, 2 * WINDOW) as host:
        per_sentence = await Ours(host, ("You are a helper. " * 100)[:letters]).tokens_per_sentence()
    assert per_sentence == pytest.approx(len(text(1, 12)) / 12, rel=0.02)


def test_sentences_do_not_repeat_and_are_the_same_again() -> None:
    some = [sentence for sentence, _ in zip(sentences(7), range(500), strict=False)]
    assert len(set(some)) == 500
    assert text(7, 500) == " ".join(some)
    assert text(8, 1) != some[0]


def test_rounds_without_an_answer_to_time_do_not_count() -> None:
    assert per_second([None, 0.1, 0.2, None, 0.4]) == pytest.approx(5)
    assert per_second([None, 0.0]) is None


def test_a_peer_is_tried_where_it_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LLAMA_VARIABLE, "/some/python")
    peers, left_out = find_peers(tmp_path / "model.gguf", FITS)
    assert [(peer.name, peer.python) for peer in peers] == [
        ("transformers", sys.executable),
        ("llama.cpp", "/some/python"),
    ]
    assert left_out == []
    peers, left_out = find_peers(tmp_path, FITS)
    assert [peer.name for peer in peers] == ["transformers"]
    assert "GGUF" in left_out[0].why


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_weights_that_would_not_fit_unpacked_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, size: int
) -> None:
    monkeypatch.setenv(LLAMA_VARIABLE, "/some/python")
    parameters = 7 * 2**30
    peers, left_out = find_peers(tmp_path / "model.gguf", Unpacked(parameters, dtype, parameters * size))
    assert [peer.name for peer in peers] == ["transformers", "llama.cpp"]
    peers, left_out = find_peers(tmp_path / "model.gguf", Unpacked(parameters, dtype, parameters * size - 1))
    assert [peer.name for peer in peers] == ["llama.cpp"]
    assert left_out[0].name == "transformers"
    assert f"{dtype} take {7 * size}.00 GiB, and" in left_out[0].why


async def _load(peer: Peer, folder: Path) -> str:
    with pytest.raises(PeerError) as failed:
        async with running(peer, OPTIONS, folder / "log"):
            pass
    return str(failed.value)


@pytest.mark.parametrize(
    ("python", "words"), [("/no/such/python", "cannot be run"), (sys.executable, "no model"), ("/bin/true", "ended")]
)
async def test_a_peer_that_does_not_start_says_why(tmp_path: Path, python: str, words: str) -> None:
    assert words in await _load(Peer("transformers", python), tmp_path)
