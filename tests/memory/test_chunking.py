from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.chunking import Chunker, Layout, Section
from memory.embed import Embedder
from memory.headings import headings


@pytest.fixture(scope="session")
def chunker(embedder: Embedder) -> Chunker:
    return Chunker(embedder.tokenizer, max_tokens=24)


_LINES = st.lists(st.text(max_size=60), max_size=20).map("\n".join)
_HEADED = st.lists(
    st.sampled_from(["# A heading", "## Another", "", "```", "Some words below. " * 9]), max_size=20
).map("\n".join)


@given(text=_LINES, layout=st.sampled_from(Layout))
@settings(max_examples=60, deadline=None)
def test_offsets_and_lines_point_at_the_text(chunker: Chunker, text: str, layout: Layout) -> None:
    chunks = chunker.chunks(Section(text, line=1), layout)
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.line == text.count("\n", 0, chunk.start) + 1
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)


@given(text=st.text(min_size=1, max_size=400) | _HEADED, layout=st.sampled_from(Layout))
@settings(max_examples=40, deadline=None)
def test_nothing_but_white_space_is_lost(chunker: Chunker, text: str, layout: Layout) -> None:
    covered = "".join(chunk.text for chunk in chunker.chunks(Section(text), layout))
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


@pytest.mark.parametrize("above", ["# Pump", "# House\n\n## Cellar\n\n### Pump", "Words before.\n\n# Pump"])
@pytest.mark.parametrize(
    "below", ["It stands in the cellar. " * 12, "- It stands in the cellar.\n" * 12, "```\nx = 1\n```\n" * 9]
)
def test_a_heading_is_never_a_passage_by_itself(chunker: Chunker, above: str, below: str) -> None:
    text = f"{above}\n\n{below}\n\n# Roof\n\nIt leaks."
    chunks = chunker.chunks(Section(text, line=1), Layout.MARKDOWN)
    assert len(chunks) > 2
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert [line for line in chunk.text.splitlines() if line.strip() and not line.startswith("#")], chunk.text


def test_headings_without_end_are_still_cut(chunker: Chunker) -> None:
    text = "\n\n".join(f"## Part {number}" for number in range(400))
    chunks = chunker.chunks(Section(text), Layout.MARKDOWN)
    assert len(chunks) > 20
    assert "".join("".join(chunk.text for chunk in chunks).split()) == "".join(text.split())


def test_a_passage_that_begins_with_a_heading_stands_under_it(chunker: Chunker) -> None:
    sections = (
        ("Trip", "We go to Lisbon in May and stay. "),
        ("Pump", "It stands in the cellar. "),
        ("Roof", "It leaks. "),
    )
    text = "\n\n".join(f"# {title}\n\n{words * 3}" for title, words in sections)
    for chunk in chunker.chunks(Section(text, line=1), Layout.MARKDOWN):
        assert chunk.heading == next(
            title for title, words in reversed(sections) if text.index(title) <= chunk.start + 2
        )
    assert {chunk.heading for chunk in chunker.chunks(Section(text), Layout.MARKDOWN)} == {"Trip", "Pump", "Roof"}


_FENCED = {
    "plain": "```\n# no\n```",
    "named": "```sh\n# no\n```",
    "tildes": "~~~\n# no\n```\n# no\n~~~",
    "longer": "````\n```\n# no\n```\n# no\n````",
    "in a list": "- ```\n  # no\n# no\n  ```",
    "in a numbered list": "1. Do:\n    ```sh\n# no\n    ```",
    "quoted": "> ```\n> # no\n# no\n> ```",
    "code in a line": "```not a fence``` # no",
    "a tag": "#no\n####### no\n\\# no\n    # no",
}


@pytest.mark.parametrize("name", _FENCED)
def test_comments_in_code_are_no_headings(name: str) -> None:
    text = f"# Before\n\n{_FENCED[name]}\n\n## C# ##\n\nText"
    assert headings(text) == [(0, "Before"), (text.index("## C#"), "C#")]


def test_a_fence_that_is_never_closed_hides_no_heading() -> None:
    assert [words for _, words in headings("# One\n\n```\ncode\n\n# Two #\n\n# Three")] == ["One", "Two", "Three"]


@pytest.mark.parametrize(
    "line", ["# " + " " * 200_000 + "x", "#" * 200_000, "# " + "# " * 100_000, "> " * 100_000, "`" * 200_000]
)
def test_headings_are_found_in_one_walk(line: str) -> None:
    assert headings(f"{line}\n# End")[-1][1] == "End"
