"""The search query of a follow-up: what its pronouns and gaps stand for, taken from the questions before it.

Words are added, never replaced: a wrong guess costs the query a little, a wrong replacement would cost it its
meaning. After centering (Grosz, Joshi and Weinstein 1995): a pronoun continues the subject that the talk is about,
and only a question with a subject of its own moves it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memory.recall import followup_words as words
from memory.words import content_terms

_LOOK_BACK = 12
"""Earlier questions that are looked at; a subject that nobody named for longer has been left."""
_MOST_WORDS = 30
"""A longer question brings its own subject."""
_MOST_ADDED = 10


@dataclass(frozen=True, slots=True)
class _Focus:
    """What a talk is about: the subject, and what the last question set beside it."""

    subject: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """The subject before this one."""


def search_query(question: str, earlier: Sequence[str]) -> str:
    """The words to search for. `earlier` are the person's questions before this one, oldest first.

    A question that stands on its own comes back as it is; to one that does not, a line is added with the words
    that it leaves out.
    """
    if not earlier or not leans_back(question):
        return question
    focus = _Focus()
    for asked in earlier[-_LOOK_BACK:]:
        focus = _moved(focus, asked)
    held = set(content_terms(question))
    added: dict[str, str] = {}
    for word in (*focus.subject, *focus.beside, *focus.before):
        terms = content_terms(word)
        if terms and not held.issuperset(terms):
            added.setdefault(" ".join(terms), word)
    return "\n".join([question, " ".join(list(added.values())[:_MOST_ADDED])]) if added else question


def leans_back(question: str) -> bool:
    """Whether a question cannot be understood without what was asked before: it has a pronoun that nothing in it
    explains, or it names a property and not of what."""
    if len(words.WORD.findall(question)) > _MOST_WORDS:
        return False
    return _open_pronoun(question) or _lacks_subject(question)


def _open_pronoun(question: str) -> bool:
    """A pronoun with nothing before it, in an earlier clause, that it could stand for."""
    if words.CHINESE_PRONOUN.search(question) and not _explained(question, words.CHINESE_PRONOUN):
        return True
    if words.IDLE_IT.search(question):
        return False
    return bool(words.PRONOUN.search(question)) and not _explained(question, words.PRONOUN)


def _explained(question: str, pronoun: re.Pattern[str]) -> bool:
    """Whether the first pronoun comes after a clause of the same question that names something itself."""
    match = pronoun.search(question)
    before = question[: match.start()] if match else ""
    *clauses, _ = words.CLAUSE.split(before)
    return any(subject_words(clause) for clause in clauses)


def _lacks_subject(question: str) -> bool:
    if words.WHAT_ABOUT.match(question):
        return len(content_terms(words.WHAT_ABOUT.sub("", question))) <= 1
    if words.CHINESE_GAP.search(question):
        return True
    if words.BARE_SUPERLATIVE.search(question):
        return True
    return bool(words.ASKS.search(question)) and bool(content_terms(question)) and not subject_words(question)


def subject_words(text: str) -> tuple[str, ...]:
    """The words of a question that say what it is about: neither how it asks, nor of which property."""
    latin = [word for word in words.WORD.findall(text) if _names_something(word)]
    chinese = [part for run in words.CHINESE.findall(text) for part in words.CHINESE_CUT.split(run) if len(part) > 1]
    return tuple(dict.fromkeys([*latin, *chinese]))


def _names_something(word: str) -> bool:
    terms = content_terms(word)
    return bool(terms) and not all(term in words.RELATIONAL for term in terms)


def _moved(focus: _Focus, question: str) -> _Focus:
    """The focus after one more question."""
    named = subject_words(question)
    if not named:
        return focus
    if leans_back(question) and focus.subject:
        return _Focus(focus.subject, named[:4], focus.before)
    return _Focus(named[:6], (), focus.subject[:3])
