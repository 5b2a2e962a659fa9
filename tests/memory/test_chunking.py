from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.chunking import Chunker, Layout, Section
from memory.embed import Embedder


@pytest.fixture(scope="session")
def chunker(embedder: Embedder) -> Chunker:
    return Chunker(embedder.tokenizer, max_tokens=24)


_LINES = st.lists(st.text(max_size=60), max_size=20).map("\n".join)


@given(text=_LINES, layout=st.sampled_from(Layout))
@settings(max_examples=60, deadline=None)
def test_offsets_and_lines_point_at_the_text(chunker: Chunker, text: str, layout: Layout) -> None:
    chunks = chunker.chunks(Section(text, line=1), layout)
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.line == text.count("\n", 0, chunk.start) + 1
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)


@given(text=st.text(min_size=1, max_size=400))
@settings(max_examples=40, deadline=None)
def test_nothing_but_white_space_is_lost(chunker: Chunker, text: str) -> None:
    covered = "".join(chunk.text for chunk in chunker.chunks(Section(text)))
    assert "".join(covered.split()) == "".join(text.split())


def test_chunks_stay_within_the_tokens(chunker: Chunker, embedder: Embedder) -> None:
    text = "The quick brown fox jumps over the lazy dog near the river bank. " * 30
    sizes = [len(embedder.tokenizer.encode(chunk.text).ids) for chunk in chunker.chunks(Section(text))]
    assert len(sizes) > 10
    assert max(sizes) <= 24


def test_a_line_without_spaces_is_cut(chunker: Chunker) -> None:
    chunks = chunker.chunks(Section("x" * 50_000))
    assert max(len(chunk.text) for chunk in chunks) <= 2000


def test_markdown_passages_know_their_heading(chunker: Chunker) -> None:
    text = "# Trip\n\n" + "We go to Lisbon in May. " * 6 + "\n\n# Pump\n\n" + "It stands in the cellar. " * 6
    chunks = chunker.chunks(Section(text, line=1), Layout.MARKDOWN)
    cellar = [chunk for chunk in chunks if chunk.text.startswith("It stands")]
    assert cellar
    assert {chunk.heading for chunk in cellar} <= {"Pump"}


def test_a_heading_is_named_once(chunker: Chunker) -> None:
    text = "# Pump\n\n" + "It stands in the cellar. " * 12
    for above, wanted in (("", "Pump"), ("Pump", "Pump"), ("House › Pump", "House › Pump"), ("House", "House › Pump")):
        chunks = chunker.chunks(Section(text, heading=above), Layout.MARKDOWN)
        assert len(chunks) > 1
        assert {chunk.heading for chunk in chunks[1:]} == {wanted}
