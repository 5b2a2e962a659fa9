"""The block that goes into the prompt: fenced, attributed, within its token budget, simple enough for a
small model."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from memory.recall.fence import CLOSE, OPEN, harmless, one_line
from memory.recall.search import Candidate
from memory.types import Passage, SourceKind, TokenCounter
from memory.words import tokens

# Of eleven forms tried on sixteen questions with SmolLM2-135M-Instruct this one gave 15 right answers; with the
# attribution before the text 12, inside <notes> tags 4 of 8.
_FOOT = f"{CLOSE}\nAnswer from the notes:"
_FOUND_NOTHING = f"{OPEN}\nThe memory was searched, and nothing about this was found.\n{CLOSE}"
_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?]+(?=\s|$)|[.!?](?=\S)|[。！？]+|\n+|$)")
_LEAST_TOKENS = 12
"""A cut passage shorter than this says nothing."""
_FIRST_SHARE = 0.7


def passages_for(budget: int) -> int:
    """How many passages a budget is worth: a small model is lost among many, and long ones are cut."""
    return max(1, min(8, budget // 60))


def nothing_found(budget: int, count: TokenCounter) -> str:
    """What the model reads when a question asks for stored things and there are none."""
    return _FOUND_NOTHING if count(_FOUND_NOTHING) <= budget else ""


def assemble(
    ranked: Sequence[Candidate],
    extra: Sequence[Candidate],
    terms: Sequence[str],
    budget: int,
    count: TokenCounter,
) -> tuple[str, list[Candidate]]:
    """The block and the candidates in it, labelled 1, 2, … in order; ("", []) when not even one fits.

    `extra` (neighbours) are taken whole, after the rest, only where room is left.
    """
    lines: list[str] = []
    taken: list[Candidate] = []
    for number, candidate in enumerate([*ranked, *extra]):
        whole = _line(candidate.passage, len(lines) + 1, candidate.passage.text)
        room = budget - count(_block([*lines, ""]))
        if room < _LEAST_TOKENS:
            break
        allowed = int(room * _FIRST_SHARE) if number == 0 and len(ranked) > 1 else room
        if count(whole) > allowed:
            if number >= len(ranked):
                continue
            frame = count(_line(candidate.passage, len(lines) + 1, ""))
            cut = excerpt(candidate.passage.text, terms, allowed - frame - 2, count)
            whole = _line(candidate.passage, len(lines) + 1, cut) if cut else ""
        # Token counts do not add up exactly across joins: the whole block decides.
        if whole and count(_block([*lines, whole])) <= budget:
            lines.append(whole)
            taken.append(candidate)
    return (_block(lines), taken) if lines else ("", [])


def _block(lines: Sequence[str]) -> str:
    return "\n".join((OPEN, *lines, _FOOT))


def _line(passage: Passage, label: int, text: str) -> str:
    body = "\n".join(line.rstrip() for line in harmless(text).strip().splitlines() if line.strip())
    return f"[{label}] {body} (from {_attribution(passage)})"


def _attribution(passage: Passage) -> str:
    title = one_line(passage.source.title)
    if passage.source.kind is SourceKind.DOCUMENT:
        if passage.place.page is not None:
            return f"{title}, page {passage.place.page}"
        return f"{title}, line {passage.place.line}" if passage.place.line is not None else title
    day = time.strftime("%Y-%m-%d", time.localtime(passage.time))
    if passage.source.kind is SourceKind.WEB:
        return f"the web page {title}, {one_line(passage.source.origin)}, found {day}"
    who = {"assistant": "you", "digest": f"a summary of the talk “{title}”"}.get(passage.role or "", "the user")
    return f"{who}, {day}"


def excerpt(text: str, terms: Sequence[str], budget: int, count: TokenCounter) -> str:
    """The sentences around the query's words that fit into `budget` tokens, verbatim; "" when not even a
    part fits."""
    spans = [match.span() for match in _SENTENCE.finditer(text) if match.group().strip()]
    if not spans or budget < _LEAST_TOKENS:
        return ""
    wanted = set(terms)
    worth = [len(wanted & set(tokens(text[start:end]))) for start, end in spans]
    first = last = worth.index(max(worth))
    if count(text[slice(*spans[first])].strip()) > budget:
        return _shortened(text[slice(*spans[first])].strip(), budget, count)
    while True:
        sides = [(worth[last + 1], first, last + 1)] if last + 1 < len(spans) else []
        sides += [(worth[first - 1], first - 1, last)] if first > 0 else []
        for _, low, high in sorted(sides, key=lambda side: -side[0]):
            if count(text[spans[low][0] : spans[high][1]].strip()) <= budget:
                first, last = low, high
                break
        else:
            return text[spans[first][0] : spans[last][1]].strip()


def _shortened(sentence: str, budget: int, count: TokenCounter) -> str:
    low, high = 0, len(sentence)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(sentence[:middle]) <= budget else (low, middle - 1)
    cut = sentence[:low]
    return cut.rsplit(" ", 1)[0] if " " in cut and low < len(sentence) else cut
