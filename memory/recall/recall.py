"""The four steps of recall in order: decide, search, rank, assemble."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from memory.filter import Filter
from memory.recall.assemble import assemble, nothing_found, passages_for
from memory.recall.decide import Known, decide, is_question, page_asked
from memory.recall.gate import BAR, FOLLOW_UP_BAR, OWN_BAR, TALK_BAR, TOLD_BAR, Gate
from memory.recall.rank import in_window, rank, repeats, without_repetition
from memory.recall.search import DEPTH, Candidate, Query, query_of, search
from memory.recall.talks import talks
from memory.recall.trace import Judged, traced
from memory.store import Store
from memory.types import (
    Decision,
    Hit,
    Passage,
    PassageId,
    Recall,
    RecallRequest,
    Scope,
    SourceId,
    SourceKind,
    TokenCounter,
)
from memory.words import content_terms

_TALK_REACH, _TALK_MOST = 16, 3
"""Messages before and after the best passage that count as the same talk, and how many of them are added."""
_NARROW = (Scope.CHAT, Scope.CHATS, Scope.DOCUMENTS)
"""Where nothing is found in these, the search goes on beyond: "paper" may be a document, and is collected on Monday."""
_RECENT = 60
"""Messages of a chat in which its latest questions are looked for."""
_OF_A_PAGE = 100
"""Passages of one page of any document that are looked at."""
_TAIL = 0.55
"""A passage below this share of the best score is left out: it would only mislead."""


class Recaller:
    """Answers recall requests from one store."""

    def __init__(self, store: Store, reads_unspaced: bool) -> None:
        self._store = store
        self._reads_unspaced = reads_unspaced

    def recall(self, request: RecallRequest, count: TokenCounter) -> Recall:
        """Decide, search, rank and assemble for one question."""
        began = time.perf_counter()
        decision = decide(request, self._known(request))
        if decision.scope is Scope.NOTHING:
            return Recall(decision, seconds=time.perf_counter() - began)
        limit = passages_for(request.budget_tokens)
        query = query_of(decision.query, self._reads_unspaced, request.asked)
        found = self._find(decision, query, request, limit)
        if not found.ranked and not found.in_window and decision.scope in _NARROW:
            wider = Scope.CHATS if decision.scope is Scope.CHAT else Scope.EVERYTHING
            widened = replace(decision, scope=wider, reason=f"{decision.reason}; nothing there, so searched further")
            further = self._find(widened, query, request, limit)
            decision, found = (widened, further) if further.ranked else (decision, found)
        extra = self._around(found, decision, request) if len(found.ranked) < limit else []
        block, taken = assemble(found.ranked, extra, query.terms, request.budget_tokens, count)
        if not taken:
            decision, block = _empty(decision, found, request, count)
        return Recall(
            decision,
            tuple(Hit(c.passage, round(c.score, 4), round(c.dense, 4), round(c.lexical, 4)) for c in taken),
            block,
            count(block) if block else 0,
            time.perf_counter() - began,
            traced(request, query, found.judged, found.ranked, taken) if found.judged else None,
        )

    def _known(self, request: RecallRequest) -> Known:
        passages = self._store.passages
        asked = (
            ()
            if request.earlier
            else (
                passage.text
                for passage in passages.of_messages(request.path[-_RECENT:])
                if passage.role == "user" and passage.text.strip() != request.question.strip()
            )
        )
        return Known(
            passages=passages.count(),
            names=tuple(name for name in passages.names() if _inside(name[0], request)),
            unseen=passages.holds_any([message for message in request.path if message not in request.visible]),
            earlier=request.earlier or tuple(asked),
        )

    def _find(self, decision: Decision, query: Query, request: RecallRequest, limit: int) -> _Found:
        if decision.scope is Scope.TALKS:
            passages = talks(self._store.passages, decision.query, request.path, request.asked, limit)
            return _not_in_window([_plain(passage) for passage in passages], request)
        if decision.scope is Scope.FILE and not decision.query:
            return _not_in_window(self._first_passages(decision, limit), request)
        asked_page = page_asked(request.question) if decision.scope in (Scope.FILE, Scope.DOCUMENTS) else None
        if asked_page is not None and (on_page := self._on_page(decision, asked_page, request)):
            return _not_in_window(on_page[:limit], request)
        judged = self._judged(decision, query, request)
        question = request.question.strip()
        if decision.query.startswith(f"{question}\n") and len(content_terms(question)) > 1:
            # What a follow-up was given besides may drown a question that stood on its own after all.
            alone = query_of(question, self._reads_unspaced, request.asked)
            judged = _nearer(judged, self._judged(decision, alone, request))
        candidates = [one.candidate for one in judged if one.passes]
        cap = decision.scope is not Scope.FILE
        ranked = rank(candidates, request, limit, cap_sources=cap, question=decision.query)
        best = max((candidate.score for candidate in ranked), default=0.0)
        worth = [candidate for candidate in ranked if candidate.score >= _TAIL * best]
        seen = any(in_window(c.passage, request) and not repeats(c.passage, request) for c in candidates)
        return _Found(worth, seen, judged)

    def _judged(self, decision: Decision, query: Query, request: RecallRequest) -> list[Judged]:
        # What the model sees is filtered out afterwards.
        seen = request.visible | request.delivered
        candidates = search(self._store, query, _filter(decision, request), DEPTH, seen)
        gate = Gate(self._store, query, decision.must or decision.own, candidates)
        return [Judged(c, gate.nearness(c), _bar(decision, c, request)) for c in candidates]

    def _first_passages(self, decision: Decision, limit: int) -> list[Candidate]:
        each = max(1, -(-limit // len(decision.sources)))
        columns = [self._store.passages.first(source, each) for source in decision.sources]
        order = [column[row] for row in range(each) for column in columns if row < len(column)]
        return [_plain(passage) for passage in order[:limit]]

    def _on_page(self, decision: Decision, page: int, request: RecallRequest) -> list[Candidate]:
        stored = self._store.passages
        if not decision.sources:
            return [_plain(passage) for passage in stored.on_page_of_any(page, request.documents, _OF_A_PAGE)]
        return [_plain(passage) for source in decision.sources for passage in stored.on_page(source, page)]

    def _around(self, found: _Found, decision: Decision, request: RecallRequest) -> list[Candidate]:
        """For the room that is left: what the same talk says about it further on, and the neighbours."""
        near = self._neighbours(found.ranked, decision, request)
        bar = TALK_BAR if decision.query == request.question.strip() else FOLLOW_UP_BAR
        same = (one.candidate.passage for one in _same_talk(found, bar))
        talk = [_plain(passage) for passage in _unseen(same, request)]
        together = (candidate.passage for candidate in [*near[:1], *talk, *near[1:]])
        return [_plain(p) for p in without_repetition(together, (c.passage for c in found.ranked))]

    def _neighbours(self, ranked: Sequence[Candidate], decision: Decision, request: RecallRequest) -> list[Candidate]:
        """For the room that is left: the answers to questions that were found, and what stands around the best passage.

        People tell things in pieces: "the car failed the inspection", and what the garage wants two messages later.
        """
        if not ranked or ranked[0].score == 0.0:
            return []
        best = ranked[0].passage
        near = self._store.passages.neighbours(best)
        answers = [
            passage
            for candidate in ranked[1:]
            if candidate.passage.role == "user" and is_question(candidate.passage.text)
            for passage in self._store.passages.neighbours(candidate.passage)
            if passage.role == "assistant" and passage.ordinal > candidate.passage.ordinal
        ]
        beyond = [
            further
            for passage in near
            if passage.ordinal > best.ordinal
            for further in self._store.passages.neighbours(passage)
        ]
        inside = _filter(decision, request)
        around = _unseen(filter(inside.admits, [*near, *answers, *beyond]), request)
        return [_plain(passage) for passage in without_repetition(around, (c.passage for c in ranked))]


@dataclass(frozen=True, slots=True)
class _Found:
    """What is worth delivering, best first; `in_window`: something that fits is in the window already; `judged`: all
    that a search found."""

    ranked: list[Candidate]
    in_window: bool
    judged: Sequence[Judged] = ()


def _same_talk(found: _Found, bar: float) -> list[Judged]:
    """What a search found in the talk around the best passage, nearest first: "she hates tuna" is far from a question
    about Moxie by itself, and close to where Moxie was named."""
    best = found.ranked[0].passage if found.ranked else None
    if best is None or best.place.message is None:
        return []
    known = {candidate.passage.id for candidate in found.ranked}
    near = [
        one
        for one in found.judged
        if one.candidate.passage.source.id == best.source.id
        and abs(one.candidate.passage.ordinal - best.ordinal) <= _TALK_REACH
        and one.nearness >= bar
        and one.candidate.passage.id not in known
    ]
    return sorted(near, key=lambda one: -one.nearness)[:_TALK_MOST]


def _nearer(one: Sequence[Judged], other: Sequence[Judged]) -> list[Judged]:
    """Each passage as the query judges it that it is nearer to, best first."""
    nearest: dict[PassageId, Judged] = {}
    for judged in (*one, *other):
        known = nearest.get(judged.candidate.passage.id)
        if known is None or judged.nearness > known.nearness:
            nearest[judged.candidate.passage.id] = judged
    return sorted(nearest.values(), key=lambda judged: -judged.candidate.score)


def _not_in_window(candidates: Sequence[Candidate], request: RecallRequest) -> _Found:
    unseen = [candidate for candidate in candidates if not in_window(candidate.passage, request)]
    return _Found(unseen, len(unseen) < len(candidates))


def _empty(decision: Decision, found: _Found, request: RecallRequest, count: TokenCounter) -> tuple[Decision, str]:
    """The decision and the block when there is nothing to deliver."""
    if found.in_window:
        return Decision(Scope.NOTHING, "what fits is in the window already", decision.query), ""
    if decision.must:
        return decision, nothing_found(request.budget_tokens, count)
    return Decision(Scope.NOTHING, "nothing stored is close enough to the question", decision.query), ""


def _inside(document: SourceId, request: RecallRequest) -> bool:
    return request.documents is None or document in request.documents


def _filter(decision: Decision, request: RecallRequest) -> Filter:
    return replace(_scope(decision, request), documents=request.documents, without=request.expired)


def _scope(decision: Decision, request: RecallRequest) -> Filter:
    match decision.scope:
        case Scope.FILE | Scope.WEB:
            return Filter(sources=decision.sources)
        case Scope.DOCUMENTS:
            return Filter(kind=SourceKind.DOCUMENT)
        case Scope.CHATS:
            return Filter(kind=SourceKind.CHAT)
        case Scope.CHAT:
            return Filter(kind=SourceKind.CHAT, messages=frozenset(request.path))
        case _:
            return Filter()


def _bar(decision: Decision, candidate: Candidate, request: RecallRequest) -> float:
    """How near a passage must be. People drop a file into a chat to ask about it, and name one to hear of it."""
    if decision.scope in (Scope.FILE, Scope.WEB):
        return 0.0
    low = decision.must or decision.own or candidate.passage.source.id in request.chat_documents
    if low:
        return OWN_BAR
    return BAR if is_question(request.question) else TOLD_BAR


def _plain(passage: Passage) -> Candidate:
    return Candidate(passage, 0.0, 0.0, 0.0, 0.0, 0.0)


def _unseen(passages: Iterable[Passage], request: RecallRequest) -> list[Passage]:
    question = request.question.strip()
    return [passage for passage in passages if not in_window(passage, request) and passage.text.strip() != question]
