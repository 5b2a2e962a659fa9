"""Whether to look into the memory at all, and where: rules that can be explained in a sentence. No model
is asked.

A whole search costs some 50 ms, less than any model's decision; so where the rules are unsure recall
searches and lets the score decide (recall.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePath

from memory.period import period
from memory.recall import phrases
from memory.recall.followup import leans_back, search_query
from memory.recall.talks import asks_for_talks
from memory.types import Decision, RecallRequest, Scope, SourceId
from memory.web import is_web
from memory.words import content_terms, fold


@dataclass(frozen=True, slots=True)
class Known:
    """What the memory knows that the rules need."""

    passages: int
    names: tuple[tuple[SourceId, str], ...]
    """Every file name of every document, oldest first."""
    unseen: bool
    """Whether this chat's path holds remembered messages that the model no longer sees."""
    earlier: tuple[str, ...]
    """What the person asked before in this chat, oldest first, for follow-ups."""


def decide(request: RecallRequest, known: Known) -> Decision:
    """Scope, reason and query for a question. An empty query with Scope.FILE asks for the files' first
    passages."""
    question = request.question.strip()
    if known.passages == 0:
        return Decision(Scope.NOTHING, "nothing is stored yet", question)
    if request.attached and all(map(is_web, request.attached)):
        return Decision(Scope.WEB, "the web was searched for this question", question, request.attached, must=True)
    if request.attached:
        query = "" if is_generic(question) else question
        return Decision(Scope.FILE, "a file came with this message", query, request.attached, must=True)
    if asks_for_talks(question):
        return Decision(Scope.TALKS, "the question asks what was talked about", question, must=True)
    named = named_files(question, known)
    if named:
        query = "" if is_generic(_without_names(question, known)) else question
        return Decision(Scope.FILE, "the question names a file", query, named, must=True)
    return _completed(
        _about_files(request, known, question)
        or _needs_nothing(question)
        or _about_a_time(request, question)
        or _about_the_past(request, known, question)
        or _speculative(known, question),
        known,
    )


def _completed(decision: Decision, known: Known) -> Decision:
    """The decision with the query of a follow-up completed by what the questions before it were about."""
    if decision.scope is Scope.NOTHING or not decision.query:
        return decision
    query = search_query(decision.query, known.earlier)
    if query == decision.query:
        return decision
    return replace(decision, query=query, reason=f"{decision.reason}; a follow-up, so with what was asked about before")


def _speculative(known: Known, question: str) -> Decision:
    # What only names a thing ("my tax number") asks as a search does, and is held to a search's bar.
    named_only = phrases.OWN_THING.match(question) is not None
    continued = leans_back(question) and any(is_own(asked) for asked in known.earlier[-1:])
    own = (is_own(question) and not named_only) or continued
    return Decision(Scope.EVERYTHING, "searched in case something stored helps", question, own=own)


def is_own(question: str) -> bool:
    """Whether a question speaks of the person's own things: "my locker", "our gig", "mum", 我的猫."""
    return phrases.OWN.search(question) is not None


def is_question(text: str) -> bool:
    """Whether a text asks something."""
    return phrases.ASKING.search(text) is not None


def is_telling(text: str) -> bool:
    """Whether a text tells something of the person and asks nothing: "my dog is called Rex", and not "my tax
    number"."""
    told = phrases.TELLING.match(text) and not phrases.ASKING.search(text)
    return bool(told) and not phrases.OWN_THING.match(text)


def is_arithmetic(question: str) -> bool:
    """Whether a question is made of numbers, units and operations only."""
    if phrases.ARITHMETIC.match(question):
        return True
    terms = content_terms(phrases.CHINESE_ARITHMETIC.sub(" ", question))
    numbers = [term for term in terms if term[0].isdigit()]
    operation = len(numbers) < len(terms) or phrases.CHINESE_ARITHMETIC.search(question) or len(numbers) > 1
    return bool(operation and phrases.NUMBER.search(question)) and all(
        term in phrases.ARITHMETIC_TERMS for term in terms if term not in numbers
    )


def _about_files(request: RecallRequest, known: Known, question: str) -> Decision | None:
    here = request.chat_documents
    speaks_of_files = bool(phrases.FILE_WORDS.search(question) or phrases.FILE_NAME.search(question))
    summarises = bool(phrases.SUMMARISING.search(question)) and is_generic(question)
    if here and summarises:
        sources = (
            here if re.search(r"\b(files|documents|both|all|they|them)\b|都|两", question, re.IGNORECASE) else here[-1:]
        )
        return Decision(Scope.FILE, "the question asks for the gist of a file of this chat", "", sources, must=True)
    if not speaks_of_files or not known.names:
        return None
    if here:
        query = "" if is_generic(question) and page_asked(question) is None else question
        return Decision(Scope.FILE, "the question speaks of a file, and this chat has some", query, here, must=True)
    if is_generic(question) and page_asked(question) is None:
        return Decision(
            Scope.FILE, "the question speaks of a file: the newest one", "", (known.names[-1][0],), must=True
        )
    definite = bool(phrases.DEFINITE_FILE.search(question))
    return Decision(Scope.DOCUMENTS, "the question speaks of a file", question, must=definite, own=is_own(question))


def _needs_nothing(question: str) -> Decision | None:
    if not question:
        return Decision(Scope.NOTHING, "there is no question", question)
    if phrases.GREETING.match(question):
        return Decision(Scope.NOTHING, "a greeting or thanks needs no memory", question)
    if is_arithmetic(question):
        return Decision(Scope.NOTHING, "arithmetic needs no memory", question)
    if phrases.JUST_NOW.search(question) or (
        phrases.REWRITING.match(question) and not phrases.MEMORY_WORDS.search(question)
    ):
        return Decision(Scope.NOTHING, "it reworks text that is already here", question)
    return None


def _about_the_past(request: RecallRequest, known: Known, question: str) -> Decision | None:
    telling = is_telling(question)
    if phrases.MEMORY_WORDS.search(question) and not telling:
        if phrases.THIS_CHAT.search(question) and known.unseen:
            return Decision(Scope.CHAT, "the question points back into this chat", question, must=True)
        return Decision(Scope.CHATS, "the question points back to an earlier talk", question, must=True)
    if telling:
        return Decision(Scope.NOTHING, "it tells something and asks nothing", question)
    if phrases.OWN_FACT.search(question) and not re.match(
        r"how (do|can|could|should|would) (i|we)\b", question, re.IGNORECASE
    ):
        return Decision(Scope.EVERYTHING, "the question is about your own affairs", question, must=True)
    return None


def _about_a_time(request: RecallRequest, question: str) -> Decision | None:
    """What happened, or is planned, in days that are named, these not being today: "what happened on 7 May?". These
    days are all there is to look for."""
    named = period(question, request.asked)
    if named is None or named.first <= request.asked < named.end or not phrases.ASKING.search(question):
        return None
    rest = question.replace(named.words, " ")
    if not all(term in phrases.HAPPENING for term in content_terms(phrases.HAPPENING_CHINESE.sub(" ", rest))):
        return None
    must = bool(phrases.MEMORY_WORDS.search(question))
    return Decision(Scope.EVERYTHING, "the question asks about a time", named.words, must=must, own=True)


def is_generic(question: str) -> bool:
    """Whether a question has no content of its own: "what is in the file?", "summarise it", "这是什么"."""
    if page_asked(question) is not None:
        return False
    bare = phrases.GENERIC_CHINESE.sub(" ", question)
    return all(term in phrases.GENERIC_TERMS for term in content_terms(bare))


def page_asked(question: str) -> int | None:
    """The page number a question names, or None."""
    match = phrases.PAGE.search(question)
    return int(next(group for group in match.groups() if group)) if match else None


def named_files(question: str, known: Known) -> tuple[SourceId, ...]:
    """Documents whose name, or distinctive stem, stands in the question; the newest of each name."""
    folded = fold(question)
    found: dict[str, SourceId] = {}
    for source, name in known.names:
        if any(form in folded and _stands_in(form, folded) for form in _forms(name)):
            found[name] = source
    return tuple(dict.fromkeys(found.values()))


@lru_cache(maxsize=1 << 16)
def _forms(name: str) -> tuple[str, ...]:
    stem = PurePath(name).stem
    # A one-word stem such as "notes" is an ordinary word; "trip_notes" or "report-2024" is a name.
    distinctive = len(stem) >= 4 and re.search(r"[\d_\- ]", stem) is not None
    forms = (fold(name), fold(stem), fold(re.sub(r"[_\-]+", " ", stem))) if distinctive else (fold(name),)
    return tuple(form for form in forms if len(form) >= 4)


def _stands_in(form: str, question: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(form)}(?![\w])", question) is not None


def _without_names(question: str, known: Known) -> str:
    folded = fold(question)
    for _, name in known.names:
        for form in _forms(name):
            folded = folded.replace(form, " ")
    return folded
