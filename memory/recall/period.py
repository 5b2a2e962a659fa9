"""The days that a question speaks of: "today", "last week", 上个月, "am Dienstag". Calendar days of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

_IGNORE = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Period:
    """Unix seconds [first, end), and the words that named it."""

    first: float
    end: float
    words: str


def period(text: str, now: float) -> Period | None:
    """The first period that a text names, as seen at `now` (Unix seconds); None when it names none."""
    today = datetime.fromtimestamp(now).date()
    found = [(match.start(), rule, match) for pattern, rule in _RULES if (match := pattern.search(text))]
    if not found:
        return None
    _, rule, match = min(found, key=lambda item: (item[0], -len(item[2].group())))
    first, end = rule(today, match)
    return Period(_midnight(first), _midnight(end), match.group())


def _midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day).timestamp()


Days = tuple[date, date]
Rule = Callable[[date, "re.Match[str]"], Days]
_DAY = timedelta(days=1)


def _day(ago: int) -> Rule:
    return lambda today, _: (today - ago * _DAY, today - (ago - 1) * _DAY)


def _week(ago: int) -> Rule:
    """From Monday to Sunday."""

    def days(today: date, _: re.Match[str]) -> Days:
        monday = today - today.weekday() * _DAY - 7 * ago * _DAY
        return monday, monday + 7 * _DAY

    return days


def _month(ago: int) -> Rule:
    return lambda today, _: _of_month(today.year, today.month - ago)


def _of_month(year: int, month: int) -> Days:
    """The days of a month, 0 being December of the year before."""
    first = date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
    return first, (first + 31 * _DAY).replace(day=1)


def _year(ago: int) -> Rule:
    return lambda today, _: (date(today.year - ago, 1, 1), date(today.year - ago + 1, 1, 1))


def _last_days(today: date, match: re.Match[str]) -> Days:
    number = next(group for group in match.groups() if group)
    count = int(number) if number.isdigit() else _NUMBERS.get(number.lower(), 2)
    unit = 30 if re.search(r"month|monat|mois|mes|月", match.group(), _IGNORE) else 1
    unit = 7 if re.search(r"week|woche|semaine|semana|周|星期", match.group(), _IGNORE) else unit
    return today - min(count * unit, 36_500) * _DAY, today + _DAY


def _weekday(today: date, match: re.Match[str]) -> Days:
    """The last such day before today."""
    number = next(n for n, names in enumerate(_WEEKDAYS) if re.search(names, match.group(), _IGNORE))
    day = today - ((today.weekday() - number - 1) % 7 + 1) * _DAY
    return day, day + _DAY


def _named_month(today: date, match: re.Match[str]) -> Days:
    """The last such month that has begun."""
    number = next(n for n, names in enumerate(_MONTHS, 1) if re.search(names, match.group(), _IGNORE))
    return _of_month(today.year if number <= today.month else today.year - 1, number)


def _chinese_month(today: date, match: re.Match[str]) -> Days:
    number = min(12, max(1, int(match.group(1))))
    return _of_month(today.year if number <= today.month else today.year - 1, number)


_NUMBERS = {
    word: number
    for number, words in enumerate(
        ("one ein", "two zwei deux dos 两 二", "three drei trois tres 三", "four vier 四", "five fünf 五", "six 六"), 1
    )
    for word in words.split()
}
_NUMBER = r"(\d{1,3}|" + "|".join(_NUMBERS) + "|few|couple of|paar)"
_WEEKDAYS = (
    r"monday|montag|lundi|lunes|[周星期拜]一",
    r"tuesday|dienstag|mardi|martes|[周星期拜]二",
    r"wednesday|mittwoch|mercredi|miércoles|[周星期拜]三",
    r"thursday|donnerstag|jeudi|jueves|[周星期拜]四",
    r"friday|freitag|vendredi|viernes|[周星期拜]五",
    r"saturday|samstag|samedi|sábado|[周星期拜]六",
    r"sunday|sonntag|dimanche|domingo|[周星期拜][日天]",
)
_MONTHS = (
    r"january|januar",
    r"february|februar",
    r"march|märz",
    r"april",
    r"\bmay|\bmai",
    r"june|juni",
    r"july|juli",
    r"august",
    r"september",
    r"october|oktober",
    r"november",
    r"december|dezember",
)
_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern, _IGNORE), rule)
    for pattern, rule in (
        (r"\b(today|heute|aujourd'hui|hoy)\b|今天|今日", _day(0)),
        (r"\b(yesterday|gestern|hier|ayer)\b|昨天|昨日", _day(1)),
        (r"\b(the day before yesterday|vorgestern|avant-hier|anteayer)\b|前天", _day(2)),
        (
            r"\b(this week|diese[rn]? woche|cette semaine|esta semana)\b|"
            r"(这个?|本)(周|星期|礼拜)(?![一二三四五六日天])",
            _week(0),
        ),
        (
            r"\b(last week|previous week|letzte[rn]? woche|vorige woche|la semaine dernière|la semana pasada)\b|"
            r"上个?(周|星期|礼拜)(?![一二三四五六日天])",
            _week(1),
        ),
        (r"\b(this month|diese[nm] monat|ce mois(-ci)?|este mes)\b|这个月|本月", _month(0)),
        (r"\b(last month|letzte[nm] monat|le mois dernier|el mes pasado)\b|上个?月", _month(1)),
        (r"\b(this year|dieses jahr|cette année|este año)\b|今年", _year(0)),
        (r"\b(last year|letztes jahr|l'année dernière|el año pasado)\b|去年", _year(1)),
        (
            rf"\b(?:last|past|previous|letzten|vergangenen|derniers|últimos) {_NUMBER} (?:days?|weeks?|months?|tagen?|"
            rf"wochen|monaten?|jours|semaines|mois|días|semanas|meses)\b|(?:最近|过去){_NUMBER}个?(?:天|周|星期|月)",
            _last_days,
        ),
        (
            r"\b(?:on |last |letzten |am )?(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|montag|dienstag|"
            r"mittwoch|donnerstag|freitag|samstag|sonntag)\b|\b(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|"
            r"lunes|martes|miércoles|jueves|viernes|sábado|domingo)\b|上?个?(?:周|星期|礼拜)[一二三四五六日天]",
            _weekday,
        ),
        (
            r"\b(?:in|of|during|im|last|letzten) (?:january|february|march|april|may|june|july|august|september|"
            r"october|november|december|januar|februar|märz|mai|juni|juli|oktober|dezember)\b",
            _named_month,
        ),
        (r"(?<!\d)(\d{1,2})月份?(?!\d*[日号])", _chinese_month),
    )
)
