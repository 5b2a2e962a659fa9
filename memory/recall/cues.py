"""Small signs that a passage answers, beside its words and its meaning."""

from __future__ import annotations

import re

from memory.types import Passage, SourceKind
from memory.words import fold

_IGNORE = re.IGNORECASE
_ASKS_TIME = re.compile(
    r"\bwhen\b|\bhow long\b|\b(what|which) (date|day|month|year|time)\b|"
    r"什么时候|何时|哪一?天|哪一?年|几号|几点|多久|多长时间",
    _IGNORE,
)
_DAY = r"(mon|tues|wednes|thurs|fri|satur|sun)day"
_TELLS_TIME = re.compile(
    rf"\b(yesterday|today|tonight|tomorrow|recently|since|ago|weekend|birthday|{_DAY}|"
    r"(last|next|this|past) (week|month|year|night|summer|winter|spring|fall|autumn)|"
    r"(\d+|a|an|few|couple of|one|two|three|four|five|six) (minutes?|hours?|days?|weeks?|months?|years?)|"
    r"(in|on|by|until) (january|february|march|april|may|june|july|august|september|october|november|december)|"
    r"\d{1,2}:\d\d|(19|20)\d\d)\b|[今昨前明后][天年晚]|[上下这]个?(周|星期|礼拜|月)|\d+\s*[年月日号点]|[几两一二三四五六七八九十]+(天|年|周|个月|小时)",
    _IGNORE,
)
_NAMED_LINE = re.compile(r"^\s*([^\W\d_][\w .'-]{0,30}?)\s*[:：]")
_QUESTION_MARKS = ("?", "？")
_FULL_LENGTH = 150

_SAID, _STATEMENT, _TIME, _LENGTH, _SPEAKER, _ANSWERS = 0.2, 0.1, 0.2, 0.15, 0.1, 0.05
"""What each is worth beside a fused score of 0 to 1, as a listwise regression over LoCoMo has them, each time fitted to
four chats and tried on the fifth: 0.10, 0.21, 0.18, 0.09 and 0.06 of the words' and the meaning's half each, much the
same in every fit. That the person said it is not among them, for in LoCoMo nobody is an assistant: on long chats with
one a boost of the person's turns lifts the evidence found among ten from 46.9 to 54.4 %."""
MOST = _SAID + _STATEMENT + _TIME + _LENGTH + _SPEAKER + _ANSWERS
TIMELY = 0.6
"""What a passage of the days that a question names is worth beside these."""


class Cues:
    """What a question looks for beside its words."""

    def __init__(self, question: str) -> None:
        self._asks_time = bool(_ASKS_TIME.search(question))
        self._words = frozenset(re.findall(r"\w+", fold(question)))

    def worth(self, passage: Passage, before: Passage | None) -> float:
        """What to add to a passage's score, 0 to `MOST`; `before` is what stands before it, where that is known."""
        worth = 0.0
        if passage.source.kind is SourceKind.DOCUMENT or passage.role == "user":
            worth += _SAID if asks(passage) else _SAID + _STATEMENT
        if self._asks_time and _TELLS_TIME.search(passage.text):
            worth += _TIME
        worth += _LENGTH * min(1.0, len(passage.text) / _FULL_LENGTH)
        named = speaker(passage.text)
        if named and self._words.issuperset(re.findall(r"\w+", fold(named))):
            worth += _SPEAKER
        if before is not None and asks(before):
            worth += _ANSWERS
        return worth


def speaker(text: str) -> str:
    """The name before the colon that a line begins with: who says it, in a talk that was pasted; "" without one."""
    named = _NAMED_LINE.match(text)
    return named[1] if named else ""


def asks(passage: Passage) -> bool:
    """Whether it is a turn that ends with a question: what comes after it tells more."""
    return passage.source.kind is not SourceKind.DOCUMENT and passage.text.rstrip().endswith(_QUESTION_MARKS)
