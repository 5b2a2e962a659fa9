"""The search query of a follow-up: what its pronouns and gaps stand for, taken from the questions before it.

Words are added, never replaced: a wrong guess costs the query a little, a wrong replacement would cost it its
meaning. Which words: those that the talk is about, weighed by how lately and how often they were named and by
whether a question introduced them, in the spirit of centering (Grosz, Joshi and Weinstein 1995).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.recall import followup_words as words
from memory.words import content_terms

_LOOK_BACK = 12
"""Earlier questions that are looked at; what nobody named for longer has been left."""
_MOST_WORDS = 30
"""A longer question brings its own subject."""
_MOST_ADDED = 10
_FADING = 0.8
"""What a word's weight is multiplied with for each question that came after."""
_INTRODUCED = 3.0
"""How much more a word counts that a question introduced: "tell me about …"."""
_NAME = 1.5
_BESIDE = 0.7
"""What a follow-up names itself counts less than the subject that it leaves out."""
_SUBJECT_SHARE = 0.6
_LEAST_SHARE = 0.05
"""Of the heaviest word's weight: what is lighter is no longer spoken of."""


def search_query(question: str, earlier: Sequence[str]) -> str:
    """The words to search for. `earlier` are the person's questions before this one, oldest first.

    A question that stands on its own comes back as it is; to one that does not, a line is added with the words
    that it leaves out.
    """
    if not earlier or not (leans_back(question) or _shortens(question, earlier[-_LOOK_BACK:])):
        return question
    held = set(content_terms(question))
    added: list[str] = []
    for phrase in _spoken_of(earlier[-_LOOK_BACK:]):
        for word in phrase.split():
            terms = content_terms(word)
            if terms and not held.issuperset(terms):
                held.update(terms)
                added.append(word)
        if len(added) >= _MOST_ADDED:
            break
    return "\n".join([question, " ".join(added)]) if added else question


def leans_back(question: str) -> bool:
    """Whether a question cannot be understood without what was asked before: it has a pronoun that nothing in it
    explains, or it names a property and not of what."""
    if len(words.WORD.findall(question)) > _MOST_WORDS:
        return False
    return _open_pronoun(question) or _lacks_subject(question)


def _shortens(question: str, earlier: Sequence[str]) -> bool:
    """Whether it calls by one word what had a longer name before: "Anne" for Anne Bonny."""
    first = words.WORD.match(question)
    short = {name for name in words.NAME.findall(question) if " " not in name and not (first and first[0] == name)}
    longer = {name for asked in earlier for name in words.NAME.findall(asked) if " " in name}
    return any(name in long.split() for name in short for long in longer)


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
    *clauses, _ = words.CLAUSE.split(question[: match.end()].rstrip("?？.!。 ") if match else "")
    return any(subject_words(clause) for clause in clauses)


def _lacks_subject(question: str) -> bool:
    if any(gap.search(question) for gap in words.GAPS):
        return True
    if words.SUPERLATIVE.search(question) and not words.RANKED.search(question):
        return True
    if words.DEFINITE.search(question) and not words.UNIQUE.search(question):
        return True
    if words.WHAT_ABOUT.match(question):
        return len(content_terms(words.WHAT_ABOUT.sub("", question))) <= 1
    return bool(words.ASKS.search(question)) and bool(content_terms(question)) and not subject_words(question)


def subject_words(text: str) -> tuple[str, ...]:
    """The words of a question that say what it is about: neither how it asks, nor of which property."""
    return tuple(dict.fromkeys(word for phrase in _phrases(text) for word in phrase.split() if _names_something(word)))


def _phrases(text: str) -> list[str]:
    """What a question names, each as it was written: words with content that stand side by side, from the first that
    names something ("causes throat cancer" is about throat cancer, "the RICE method" about that method)."""
    phrases: list[str] = []
    end = -1
    for match in words.WORD.finditer(text):
        word = match[0]
        if phrases and text[end : match.start()] == " " and content_terms(word):
            phrases[-1] += f" {word}"
        elif _names_something(word):
            phrases.append(word)
        else:
            continue
        end = match.end()
    chinese = [part for run in words.CHINESE.findall(text) for part in words.CHINESE_CUT.split(run) if len(part) > 1]
    return [*phrases, *chinese]


def _names_something(word: str) -> bool:
    terms = content_terms(word)
    return bool(terms) and not all(term in words.RELATIONAL for term in terms)


def _introduces(question: str) -> bool:
    """Whether it asks for a thing as such and not for a property of it."""
    latin = [word for word in words.WORD.findall(question) if content_terms(word)]
    return bool(words.INTRODUCES.search(question)) and all(_names_something(word) for word in latin)


def _spoken_of(earlier: Sequence[str]) -> list[str]:
    """What the talk is about, the heaviest first, each in the form it was last written in."""
    weights: dict[str, float] = {}
    forms: dict[str, str] = {}
    for question in earlier:
        subject = _heaviest(weights, _SUBJECT_SHARE)
        weights = {term: weight * _FADING for term, weight in weights.items()}
        leans = bool(subject) and leans_back(question)
        if leans:  # its pronoun names the subject once more
            weights.update((term, weights[term] + 1.0) for term in subject)
        weight = _BESIDE if leans else _INTRODUCED if _introduces(question) else 1.0
        for phrase in _phrases(question):
            named = phrase[:1].isupper() and not question.startswith(phrase)
            for term in content_terms(phrase):
                weights[term] = weights.get(term, 0.0) + weight * (_NAME if named else 1.0)
                if term not in forms or " " in phrase or " " not in forms[term]:
                    forms[term] = phrase
    return list(dict.fromkeys(forms[term] for term in _heaviest(weights, _LEAST_SHARE)))


def _heaviest(weights: dict[str, float], share: float) -> list[str]:
    """The terms of at least this share of the heaviest one's weight, the heaviest first."""
    least = share * max(weights.values(), default=0.0)
    return [term for term in sorted(weights, key=lambda term: -weights[term]) if weights[term] >= least]
