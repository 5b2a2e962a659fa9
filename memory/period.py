"""The days that a text speaks of: "today", "two weeks ago", "on 3 May", 上个月, "am Dienstag". Calendar days of this
machine, as seen from the day on which it was said.

Own rules and no library: what such a library takes for a date in a text of ours is a number or a short word as often.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from memory.period_rules import DATE, HINT, RULES, SENTENCE_END

_DAY = timedelta(days=1)
_MOST_DAYS, _MOST_WEEKS, _MOST_MONTHS = 10, 9, 24
"""Of these a span is made; a longer one of the next coarser."""
_MOST = 6
"""Times that are looked at in one text: more of them say nothing about it."""


@dataclass(frozen=True, slots=True)
class Period:
    """The days [first, end), and the words that named them."""

    since: date
    until: date
    words: str

    @property
    def first(self) -> float:
        """Its beginning in Unix seconds."""
        return _midnight(self.since)

    @property
    def end(self) -> float:
        """The first second after it."""
        return _midnight(self.until)

    @property
    def is_literal(self) -> bool:
        """Whether it is written as a date, as others may have written it; "last week" is not."""
        return DATE.search(self.words) is not None

    @property
    def marks(self) -> tuple[str, ...]:
        """Index terms that a text of these days holds one of: days, calendar weeks, months or years, by how long it
        is."""
        return tuple(dict.fromkeys(self._marks()))

    def _marks(self) -> list[str]:
        days = [self.since + n * _DAY for n in range(min((self.until - self.since).days, 366 * 100))]
        if self.since.day == self.until.day == 1:
            whole = (self.until.year - self.since.year) * 12 + self.until.month - self.since.month
            in_months = whole % 12 and whole <= _MOST_MONTHS
            return [_month(day) if in_months else f"{day.year}" for day in days]
        if len(days) == 7 and self.since.weekday() == 0:
            return [_week(self.since)]
        if len(days) <= _MOST_DAYS:
            return [_day(day) for day in days]
        if len(days) <= 7 * _MOST_WEEKS:
            return [_week(day) for day in days]
        return [_month(day) if len(days) <= 31 * _MOST_MONTHS else f"{day.year}" for day in days]


def period(text: str, now: float) -> Period | None:
    """The first period that a text names, as seen at `now` (Unix seconds); None when it names none."""
    return next(iter(periods(text, now)), None)


def periods(text: str, now: float) -> list[Period]:
    """The periods that a text names, as seen at `now` (Unix seconds), in order; of words that overlap the longest."""
    today = datetime.fromtimestamp(now).date()
    matches = [
        (match, rule)
        for start, stop in _sentences_with_hints(text)
        for pattern, rule in RULES
        for match in pattern.finditer(text, start, stop)
    ]
    found: list[Period] = []
    end = -1
    for match, rule in sorted(matches, key=lambda item: (item[0].start(), -len(item[0].group()))):
        if match.start() < end or len(found) >= _MOST:
            continue
        try:
            days = rule(today, match)
        except (ValueError, OverflowError):  # the 31st of June, or beyond all calendars
            continue
        if days is not None:
            found.append(Period(*days, match.group()))
            end = match.end()
    return found


def _sentences_with_hints(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    stop = 0
    while (hint := HINT.search(text, stop)) is not None and len(found) < _MOST:
        ends = (end.end() for end in SENTENCE_END.finditer(text, stop, hint.start()) if end.group())
        start = max(ends, default=stop)
        end = SENTENCE_END.search(text, hint.end())
        stop = end.start() if end is not None else len(text)
        found.append((start, stop))
    return found


def dated(text: str, said: float) -> str:
    """The dates to index beside a text that was said at `said`: its own, and those that it speaks of, in words and as
    marks."""
    today = datetime.fromtimestamp(said).date()
    own = Period(today, today + _DAY, "")
    spoken = [named for named in periods(text, said) if named.since != today]
    return " ".join(dict.fromkeys(word for named in (own, *spoken) for word in _in_words(named).split()))


def _in_words(named: Period) -> str:
    """A day as "Tuesday 7 May 2024" with the marks of its week, month and year; of longer times what there is."""
    first = named.since
    month = f"{first:%B} {_month(first)}"
    if named.until - first == _DAY:
        return f"{first:%A} {first.day} {month} {first.year} {_day(first)} {_week(first)}"
    if named.until - first <= 31 * _DAY:
        return f"{' '.join(named.marks)} {month} {first.year}"
    return f"{' '.join(named.marks)} {first.year}"


def _day(day: date) -> str:
    return f"{day:%Y%m%d}"


def _week(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year}w{week:02}"


def _month(day: date) -> str:
    return f"{day:%Y%m}"


def _midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day).timestamp()
