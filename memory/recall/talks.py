"""What was talked about: a question without a subject of its own is answered by the digests of the days it names, and
by the questions of turns that no digest sums up yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from memory.digest import between
from memory.passage_rows import COLUMNS, FROM, to_passage
from memory.passages import PassageDb
from memory.period import period
from memory.types import Passage
from memory.words import content_terms, query_terms

_OVERVIEW = re.compile(
    r"\b(what|which (topics?|subjects?|things?)|what (topics?|subjects?|things?|else)) (all )?(have|had|did|were|do) "
    r"(we|you and i|i) (all )?(been |just )?(talk|chat|speak|spoke|discuss|convers|cover|go over|gone over)\w*"
    r"( (about|over|through))?|"
    r"\bwhat (was|were|is|are) (our|the|my) (\w+ )?(talks?|chats?|conversations?|discussions?) (\w+ )?about|"
    r"\b(summari[sz]e|recap|sum up|go over|list|(give me )?(a |an )?(summary|overview|recap) of) "
    r"(all )?(our|my|the) (\w+ )?(talks?|chats?|conversations?|discussions?|topics)|"
    r"\bwor(ü|ue?)ber (haben|hatten) wir\b(?P<german>.*?)\b(gesprochen|geredet|gechattet|diskutiert|unterhalten)|"
    r"\bwas (haben|hatten) wir\b(?P<german_too>.*?)\b(besprochen|diskutiert)|"
    r"\bde quoi (avons-nous|a-t-on|on a|nous avons) (parlé|discuté)|"
    r"\bde qué (hemos hablado|hablamos|estuvimos hablando)|"
    r"(我们|咱们|我|我和你|你和我)?[^，。？\n]{0,10}?(聊|谈|讨论)(了|过|的)?(是|些|哪些|都是)*(什么|哪些)(话题|内容|事情?|东西)?|"
    r"(总结|回顾|概括)(一下)?(我们|咱们)?[^，。？\n]{0,6}?的?(聊天|谈话|对话|讨论)",
    re.IGNORECASE,
)
_NO_SUBJECT = frozenset(
    query_terms(
        """talk talked talking chat chatted chatting speak spoke discuss discussed discussion conversation
        conversations topic topics subject things so far together lately recently today yesterday day days week weeks
        month months year last past previous earlier summary overview recap list give show tell remind short brief
        please bisher heute denn eigentlich so zuletzt kurz bitte cette semaine esta""",
        limit=200,
    )
)
_NO_SUBJECT_CHINESE = re.compile(
    "[我们咱你和都一下请帮给在最近里上次之前以前到现为止今天昨这那个周月年的了过吗呢吧啊]|对话|聊天"
)
_OPEN = re.compile(r"\b(this|our) (chat|conversation)\b|(这|本)(次|个)?(聊天|对话)|in diesem chat", re.IGNORECASE)
_MOST = 400
"""Digests, and questions without one, that are looked at: the newest."""
_TURNS_OF_A_CHAT = 3
"""How many questions stand for a chat that no digest sums up yet."""


def asks_for_talks(question: str) -> bool:
    """Whether a question asks what was talked about, whatever it was: "worüber haben wir gesprochen?". One with a
    subject ("what did we discuss about the roof?") does not."""
    match = _OVERVIEW.search(question)
    if match is None:
        return False
    named = period(question, 0.0)
    inside = match.group("german") or match.group("german_too") or ""
    rest = f"{question[: match.start()]} {inside} {question[match.end() :]} "
    if named is not None:
        rest = rest.replace(named.words, " ")
    rest = _NO_SUBJECT_CHINESE.sub(" ", rest)
    return all(term in _NO_SUBJECT for term in content_terms(rest))


def talks(db: PassageDb, question: str, path: Sequence[str], now: float, limit: int) -> list[Passage]:
    """At most `limit` passages of what was talked about in the period that the question names, or ever; of this chat's
    `path` only where it says so. The first of every chat come before the others of any, digests before single turns,
    newer before older; returned oldest first."""
    named = period(question, now)
    days = (named.first, named.end) if named is not None else (0.0, now + 1.0)
    found = [*between(db, *days, _MOST), *_unsummed(db, *days)]
    if _OPEN.search(question):
        here = set(path)
        found = [passage for passage in found if passage.place.message in here]
    by_chat: dict[str, list[Passage]] = {}
    # A digest says more than a single turn: where there is room for little, digests come first.
    for passage in sorted(found, key=lambda passage: (not passage.turns, -passage.time)):
        by_chat.setdefault(passage.source.id, []).append(passage)
    in_turn = [passage for row in zip_longest(*by_chat.values()) for passage in row if passage is not None]
    return sorted(in_turn[:limit], key=lambda passage: passage.time)


def _unsummed(db: PassageDb, first: float, end: float) -> list[Passage]:
    """What the person said in turns without a digest: the newest few of each chat."""
    rows = db.rows(
        f"SELECT {COLUMNS} {FROM} WHERE p.time >= ? AND p.time < ? AND p.role = 'user' AND p.message NOT IN "
        "(SELECT message FROM digested) ORDER BY p.time DESC LIMIT ?",
        first,
        end,
        _MOST,
    )
    counts: dict[str, int] = {}
    found = []
    for passage in map(to_passage, rows):
        counts[passage.source.id] = counts.get(passage.source.id, 0) + 1
        if counts[passage.source.id] <= _TURNS_OF_A_CHAT and len(content_terms(passage.text)) > 1:
            found.append(passage)
    return found
