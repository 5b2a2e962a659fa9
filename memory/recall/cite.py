"""After the answer: which of the delivered passages does it rest on, and is what it quotes from them there?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.recall.fence import one_line
from memory.types import Passage
from memory.words import fold, query_terms, tokens

_CODE = re.compile(r"(```.*?(?:```|$)|`[^`\n]*`)", re.DOTALL)
_PAGE = r"(?:\s*[,，;:]?\s*(?:pages?|pp?\.|第)\s*(?P<{name}>\d{{1,4}})\s*页?)?"
_MARK = re.compile(
    r"(?P<before>[ \t]?)[\[【]\s*(?:(?:S|source |note )?(?P<numbers>\d{1,2}(?:\s*[,，;]\s*\d{1,2})*)"
    rf"{_PAGE.format(name='page')}|(?P<title>[^\[\]【】\n]{{1,80}}?\.\w{{1,5}}){_PAGE.format(name='title_page')})\s*[\]】]",
    re.IGNORECASE,
)
"""[1], [1, 2], 【3】, [S1], [1, page 4], [report.pdf, p. 4]."""
_QUOTE = re.compile(r"[“\"«「『]([^“”\"«»「」『』\n]{6,400})[”\"»」』]")
_GAP = re.compile(r"\s*(?:\.\.\.|…|\[\.\.\.\])\s*")
_LEAST_QUOTED_WORDS = 3
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d")
_STRONG = 2.0
"""Weight that carries a citation: one number, or two words that the question did not hold."""
_NEAR_BEST = 0.5


def cite(question: str, answer: str, passages: Sequence[Passage]) -> tuple[str, tuple[str, ...]]:
    """The answer with the marks that hold, and the labels it rests on, strongest first.

    Labels are "1", "2", … in the order of `passages`. A mark holds when it names a delivered passage, by label or by
    file name and page, and when what the answer quotes before it stands in that passage; a quotation marked with the
    wrong label gets the right one, one that stands nowhere loses its mark. Pages are left out of marks: the place of a
    passage is known, the model's idea of it may be wrong. Small models write no marks: a passage is also cited when it
    holds words or numbers of the answer that the question did not bring along.
    """
    marked: list[str] = []
    # Brackets in code are indices, not marks.
    parts = [part if _CODE.fullmatch(part) else _checked(part, passages, marked) for part in _CODE.split(answer)]
    cleaned = "".join(parts)
    ordered = [*marked, *_supported(question, cleaned, passages)]
    return cleaned, tuple(dict.fromkeys(ordered))


def _checked(text: str, passages: Sequence[Passage], marked: list[str]) -> str:
    """A part of an answer with its marks put right; the labels in them are added to `marked`."""
    quotes: list[str] = []
    pieces: list[str] = []
    end = 0
    for match in _MARK.finditer(text):
        before = text[end : match.start()]
        if before.strip():  # of marks in a row all stand for the same words
            quotes = _quoted(before.rsplit("\n", 1)[-1])
        labels = _named(match, passages)
        if labels and quotes:
            labels = _holding(quotes, labels, passages)
        marked.extend(labels)
        pieces.append(before)
        if labels:
            pieces.append(match.group("before") + "".join(f"[{label}]" for label in labels))
        end = match.end()
    return "".join([*pieces, text[end:]])


def _named(match: re.Match[str], passages: Sequence[Passage]) -> list[str]:
    """The labels of the delivered passages that a mark names."""
    if match.group("numbers"):
        numbers = [int(number) for number in re.findall(r"\d+", match.group("numbers"))]
        return [str(number) for number in numbers if 1 <= number <= len(passages)]
    title, page = fold(match.group("title")).strip(), match.group("title_page")
    return [
        str(label)
        for label, passage in enumerate(passages, start=1)
        if title in (fold(passage.source.title), fold(one_line(passage.source.title)))
        and (page is None or passage.place.page == int(page))
    ]


def _quoted(text: str) -> list[str]:
    """Quotations long enough to be somebody's words, each cut where it leaves something out."""
    quotes = [match.group(1) for match in _QUOTE.finditer(text)]
    return [quote for quote in quotes if len(tokens(quote)) >= _LEAST_QUOTED_WORDS]


def _holding(quotes: Sequence[str], labels: Sequence[str], passages: Sequence[Passage]) -> list[str]:
    """Of these labels those whose passage holds one of the quotations; else the labels of those that hold them all."""
    right = [label for label in labels if any(_holds(passages[int(label) - 1], quote) for quote in quotes)]
    if right:
        return right
    return [
        str(label) for label, passage in enumerate(passages, start=1) if all(_holds(passage, quote) for quote in quotes)
    ][:1]


def _holds(passage: Passage, quote: str) -> bool:
    """Whether the words of a quotation stand in a passage in that order, whatever the punctuation."""
    held = _words(passage.text)
    return all(_words(part) in held for part in _GAP.split(quote) if part.strip())


def _words(text: str) -> str:
    words = " ".join(_WORD.findall(fold(text)))
    return f" {words} "


def _supported(question: str, answer: str, passages: Sequence[Passage]) -> list[str]:
    asked = set(tokens(question))
    new = [term for term in query_terms(_MARK.sub("", answer), limit=400) if term not in asked]
    held = [set(tokens(passage.text)) for passage in passages]
    scores = [0.0] * len(passages)
    for term in new:
        holders = [number for number, words in enumerate(held) if term in words]
        for number in holders:
            # What many passages say tells none of them apart; two that say the same both carry the answer (a fact
            # and the turn that repeated it).
            scores[number] += _weight(term) / max(1, len(holders) - 1)
    best = max(scores, default=0.0)
    chosen = [number for number, score in enumerate(scores) if score >= _STRONG and score >= _NEAR_BEST * best]
    if not chosen and best >= _STRONG / 2 and _mostly_from(new, held[scores.index(best)]):
        chosen = [scores.index(best)]
    return [str(number + 1) for number in sorted(chosen, key=lambda number: -scores[number])]


def _weight(term: str) -> float:
    if _NUMBER.search(term):
        return _STRONG if len(term) > 1 else 1.0
    return 1.0 if len(term) > 2 or not term.isascii() else 0.5


def _mostly_from(new: Sequence[str], held: set[str]) -> bool:
    """A short answer, such as a bare name, that the passage holds to more than half."""
    return bool(new) and sum(term in held for term in new) > len(new) / 2
