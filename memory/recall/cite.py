"""After the answer: which of the delivered passages does it rest on?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.types import Passage
from memory.words import query_terms, tokens

_CODE = re.compile(r"(```.*?(?:```|$)|`[^`\n]*`)", re.DOTALL)
_MARK = re.compile(
    r"(?P<before>[ \t]?)[\[【]\s*(?:S|source |note )?(?P<numbers>\d{1,2}(?:\s*[,，;]\s*\d{1,2})*)\s*[\]】]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")
_STRONG = 2.0
"""Weight that carries a citation: one number, or two words that the question did not hold."""
_NEAR_BEST = 0.5


def cite(question: str, answer: str, passages: Sequence[Passage]) -> tuple[str, tuple[str, ...]]:
    """The answer without marks that name nothing delivered, and the labels it rests on, strongest first.

    Labels are "1", "2", … in the order of `passages`. A mark the model wrote counts first; small models
    write none, so a passage is also cited when it holds words or numbers of the answer that the question
    did not bring along.
    """
    marked: list[str] = []

    def keep(match: re.Match[str]) -> str:
        numbers = [number.lstrip("0") for number in re.findall(r"\d+", match.group("numbers"))]
        good = [number for number in numbers if number.isdigit() and 1 <= int(number) <= len(passages)]
        marked.extend(good)
        return match.group("before") + "".join(f"[{number}]" for number in good) if good else ""

    # Brackets in code are indices, not marks.
    parts = [part if _CODE.fullmatch(part) else _MARK.sub(keep, part) for part in _CODE.split(answer)]
    cleaned = "".join(parts)
    ordered = [*marked, *_supported(question, cleaned, passages)]
    return cleaned, tuple(dict.fromkeys(ordered))


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
