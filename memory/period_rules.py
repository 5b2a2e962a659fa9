"""How people name days, in English, Chinese, German, French and Spanish: patterns, and the days each of them means."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta

_IGNORE = re.IGNORECASE
Days = tuple[date, date]
Rule = Callable[[date, "re.Match[str]"], Days | None]
_DAY = timedelta(days=1)

# --- words ------------------------------------------------------------------------------------------------------------

_SMALL = {
    word: number
    for number, words in enumerate(
        (
            "a an one ein eine einem einer einen un une una uno",
            "two zwei deux dos couple",
            "three drei trois tres few paar",
            "four vier quatre cuatro",
            "five fünf cinq cinco",
            "six sechs seis",
            "seven sieben sept siete",
            "eight acht huit ocho",
            "nine neun neuf nueve",
            "ten zehn dix diez",
        ),
        1,
    )
    for word in words.split()
}
_NUMBER = r"(?:\d{1,3}|" + "|".join(_SMALL) + r")(?: of)?"
_CHINESE_DIGITS = "一二三四五六七八九"
_CHINESE_NUMBER = rf"(?:\d{{1,4}}|[两几{_CHINESE_DIGITS}十]{{1,3}})"
_WEEKDAYS = (
    r"monday|montag|lundi|lunes|[周期拜]一",
    r"tuesday|dienstag|mardi|martes|[周期拜]二",
    r"wednesday|mittwoch|mercredi|miércoles|[周期拜]三",
    r"thursday|donnerstag|jeudi|jueves|[周期拜]四",
    r"friday|freitag|vendredi|viernes|[周期拜]五",
    r"saturday|samstag|samedi|sábado|[周期拜]六",
    r"sunday|sonntag|dimanche|domingo|[周期拜][日天]",
)
_MONTHS = (
    "january|januar|janvier|enero",
    "february|februar|février|febrero",
    "march|märz|mars|marzo",
    "april|avril|abril",
    "may|mai|mayo",
    "june|juni|juin|junio",
    "july|juli|juillet|julio",
    "august|août|agosto",
    "september|septembre|septiembre",
    "october|oktober|octobre|octubre",
    "november|novembre|noviembre",
    "december|dezember|décembre|diciembre",
)
_LATIN_DAY = "|".join(name for names in _WEEKDAYS for name in names.split("|")[:-1])
_MONTH = "|".join(name for names in _MONTHS for name in names.split("|"))
_YEAR = r"(?:19|20)\d\d"
_CHINESE_WEEK = "(?:周|星期|礼拜)"
_CHINESE_MONTH = rf"(?:1[0-2]|0?[1-9]|十[一二]?|[{_CHINESE_DIGITS}])月"
_AHEAD = re.compile(
    r"\b(will|won't|going to|gonna|shall|next|coming|upcoming|plan(s|ned|ning)?|tomorrow|due|appointment|booked|"
    r"(have|got|need) (an?|the|to|my|our)|werde|wird|werden|nächste[nrs]?|kommende[nrs]?|prochaine?|"
    r"próxim[oa])\b|'ll\b|[会将要]|打算|准备|计划|预约|下(个|周|次)",
    _IGNORE,
)
"""In a sentence with one of these a bare "on Friday" is the coming one; else the last."""
SENTENCE_END = re.compile(r"(?<!\d)[.!?](?=\s|$)|[。！？\n]+|$")
"""The point in "3. Mai" ends none."""
_FRENCH = re.compile(r"\b(je|nous|vous|avons|avez|était|quoi|une|et|mes|mon)\b|\b[jc]'|qu'", _IGNORE)

DATE = re.compile(rf"\b(?:{_MONTH})\b|{_YEAR}|\d[./-]\d|(?<!个)月", _IGNORE)
"""What only a date has."""
HINT = re.compile(
    rf"(?<!\d)(?:19|20)\d\d(?!\d)|\d\.\d|\b(?:today|tonight|tomorrow|yesterday|morning|afternoon|evening|night|days?|weeks?|weekend|months?|years?|"
    rf"heute|gestern|vorgestern|morgen|übermorgen|tagen?|wochen?|wochenende|monat(?:en?)?|jahr(?:en?|es)?|hier|"
    rf"avant-hier|demain|aujourd'hui|jours?|semaines?|mois|ans?|année|hoy|ayer|anteayer|mañana|días?|semanas?|mes|meses|"
    rf"años?|{_LATIN_DAY}|{_MONTH})\b|[天日号周月年晚早]|星期|礼拜",
    _IGNORE,
)
"""Where there may be anything to look for: what follows is too slow for every word of every message."""


def _number(text: str) -> int:
    word = text.strip().lower().removesuffix(" of")
    if word.isdigit():
        return int(word)
    if word in _SMALL:
        return _SMALL[word]
    word = word.replace("两", "二").replace("几", "三")
    tens, ten, ones = word.rpartition("十")
    value = _CHINESE_DIGITS.find(ones) + 1 if ones else 0
    return value + (10 * (_CHINESE_DIGITS.find(tens) + 1 if tens else 1) if ten else 0)


def _place(names: tuple[str, ...], text: str) -> int:
    return next(n for n, name in enumerate(names) if re.search(name, text, _IGNORE))


def _ahead(match: re.Match[str]) -> bool:
    """Whether the sentence around a match speaks of what is to come."""
    text = match.string
    start = max((end.end() for end in SENTENCE_END.finditer(text) if end.end() <= match.start()), default=0)
    following = SENTENCE_END.search(text, match.end())
    return bool(_AHEAD.search(text, start, following.start() if following else len(text)))


# --- what they mean ---------------------------------------------------------------------------------------------------


def _day(ahead: int) -> Rule:
    return lambda today, _: (today + ahead * _DAY, today + (ahead + 1) * _DAY)


def _hier(today: date, match: re.Match[str]) -> Days | None:
    """Yesterday in French, here in German."""
    return (today - _DAY, today) if _FRENCH.search(match.string) else None


def _monday(today: date, ahead: int) -> date:
    return today - today.weekday() * _DAY + 7 * ahead * _DAY


def _week(ahead: int) -> Rule:
    """From Monday to Sunday."""
    return lambda today, _: (_monday(today, ahead), _monday(today, ahead + 1))


def _weekend(ahead: int) -> Rule:
    return lambda today, _: (_monday(today, ahead) + 5 * _DAY, _monday(today, ahead + 1))


def _month(ahead: int) -> Rule:
    return lambda today, _: _of_month(today.year, today.month + ahead)


def _of_month(year: int, month: int) -> Days:
    """The days of a month, 0 being December of the year before and 13 January of the year after."""
    first = date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
    return first, (first + 31 * _DAY).replace(day=1)


def _of_year(year: int) -> Days:
    return date(year, 1, 1), date(year + 1, 1, 1)


def _year(ahead: int) -> Rule:
    return lambda today, _: _of_year(today.year + ahead)


def _unit(text: str) -> str:
    if re.search("week|woche|semaine|semana|周|星期|礼拜", text, _IGNORE):
        return "week"
    if re.search("month|monat|mois|mes|月", text, _IGNORE):
        return "month"
    return "year" if re.search(r"year|jahr|\ban|año|年", text, _IGNORE) else "day"


def _away(direction: int) -> Rule:
    """So many days, weeks, months or years away: that day, or the week, month or year around it."""

    def days(today: date, match: re.Match[str]) -> Days | None:
        count = direction * _number(match["number"])
        match _unit(match["unit"]):
            case "day":
                return _day(count)(today, match)
            case "week":
                return _week(count)(today, match)
            case "month":
                return _month(count)(today, match)
            case _:
                return _of_year(today.year + count)

    return days


def _last_days(today: date, match: re.Match[str]) -> Days:
    size = {"day": 1, "week": 7, "month": 30, "year": 365}[_unit(match["unit"])]
    return today - min(_number(match["number"]) * size, 36_500) * _DAY, today + _DAY


def _weekday(today: date, match: re.Match[str]) -> Days:
    """The last such day before today, or the next one after it; "next Tuesday" is that of the next week."""
    number = _place(_WEEKDAYS, match["day"])
    words = match.group().lower()
    if re.match(r"next|nächste|kommende", words):
        coming = today + ((number - today.weekday() - 1) % 7 + 1) * _DAY
        day = coming + 7 * _DAY if coming < _monday(today, 1) and words.startswith("next") else coming
    elif words.startswith("this") or (not re.match(r"last|letzte|vergangene", words) and _ahead(match)):
        day = today + (number - today.weekday()) % 7 * _DAY
    else:
        day = today - ((today.weekday() - number - 1) % 7 + 1) * _DAY
    return day, day + _DAY


def _chinese_weekday(today: date, match: re.Match[str]) -> Days:
    """上周二 is the Tuesday of last week; 周二 alone the last one, or the next."""
    which = match["which"]
    if not which:
        return _weekday(today, match)
    ahead = which.count("下") - which.count("上")
    day = _monday(today, ahead) + _place(_WEEKDAYS, match["day"]) * _DAY
    return day, day + _DAY


def _named_month(today: date, match: re.Match[str]) -> Days:
    """Of the year that is named; else the last such month that has begun, or the next one."""
    number = _place(_MONTHS, rf"{match['month']}") + 1
    return _of_month(_year_of(today, match, date(2000, number, 1)), number)


def _year_of(today: date, match: re.Match[str], day: date) -> int:
    if match["year"]:
        return int(match["year"])
    past = (day.month, day.day) <= (today.month, today.day)
    if re.match("next|nächsten", match.group(), _IGNORE) or _ahead(match):
        near = past and (day.month, day.day) != (today.month, today.day) and day.month != today.month
        return today.year + 1 if near or (re.match("next", match.group(), _IGNORE) and past) else today.year
    return today.year if past else today.year - 1


def _named_day(today: date, match: re.Match[str]) -> Days:
    month = _place(_MONTHS, match["month"]) + 1
    return _single(today, match, month, int(match["date"]))


def _numeric_day(_: date, match: re.Match[str]) -> Days:
    day = date(int(match["year"]), int(match["month"]), int(match["date"]))
    return day, day + _DAY


def _single(today: date, match: re.Match[str], month: int, number: int) -> Days:
    year = _year_of(today, match, date(2000, month, number))
    day = date(year, month, number)
    return day, day + _DAY


def _chinese_date(today: date, match: re.Match[str]) -> Days:
    """年, 月 and 日, each of them or the first ones."""
    named = match["year"]
    year = {"去年": -1, "前年": -2, "今年": 0, "明年": 1}.get(named or "")
    years = today.year + year if year is not None else int(named[:4]) if named else None
    if match["month"] is None:
        return _of_year(years if years is not None else today.year)
    month = _number(match["month"].removesuffix("月"))
    number = _number(match["date"][:-1]) if match["date"] else None
    if years is None:
        ahead, day = _ahead(match), (month, number or 1)
        here = (today.month, today.day if number else 1)
        years = today.year + (1 if ahead and day < here else -1 if not ahead and day > here else 0)
    if number is None:
        return _of_month(years, month)
    first = date(years, month, number)
    return first, first + _DAY


# --- the table --------------------------------------------------------------------------------------------------------

_DAY_OF = rf"(?P<date>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th|\.)?(?: (?:of|de))? ?(?P<month>{_MONTH})\b"
_UNITS = (
    r"(?P<unit>days?|weeks?|months?|years?|tage[n]?|wochen?|monate?[n]?|jahre?[n]?|jours?|semaines?|mois|ans?|días?|"
    r"semanas?|mes(?:es)?|años?)"
)
_CHINESE_UNIT = r"(?P<unit>天|周|个?星期|个?礼拜|个月|年)"
RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern, _IGNORE), rule)
    for pattern, rule in (
        (
            r"\b(today|tonight|this (morning|afternoon|evening)|heute|aujourd'hui|hoy)\b|今天|今日|今晚|今早|今晨",
            _day(0),
        ),
        (r"\b(yesterday( (morning|afternoon|evening))?|last night|gestern|ayer)\b|昨天|昨日|昨晚", _day(-1)),
        (r"\bhier\b", _hier),
        (r"\b(the day before yesterday|vorgestern|avant-hier|anteayer)\b|前天", _day(-2)),
        (r"\b(tomorrow( (morning|afternoon|evening|night))?|demain)\b|明天|明日|明晚|明早", _day(1)),
        (r"\b(the day after tomorrow|übermorgen|après-demain|pasado mañana)\b|后天", _day(2)),
        (
            r"\b(this week|diese[rn]? woche|cette semaine|esta semana)\b|"
            rf"(这个?|本){_CHINESE_WEEK}(?![一二三四五六日天末])",
            _week(0),
        ),
        (
            r"\b(last week|previous week|letzte[rn]? woche|vorige woche|la semaine dernière|la semana pasada)\b|"
            rf"(?<!上)上个?{_CHINESE_WEEK}(?![一二三四五六日天末])",
            _week(-1),
        ),
        (
            r"\b(next week|nächste[rn]? woche|la semaine prochaine|la próxima semana)\b|"
            rf"(?<!下)下个?{_CHINESE_WEEK}(?![一二三四五六日天末])",
            _week(1),
        ),
        (rf"上上个?{_CHINESE_WEEK}(?![一二三四五六日天末])", _week(-2)),
        (rf"下下个?{_CHINESE_WEEK}(?![一二三四五六日天末])", _week(2)),
        (r"\b(last weekend|letztes wochenende|le week-end dernier)\b|上个?周末", _weekend(-1)),
        (r"\b(this weekend|dieses wochenende|ce week-end)\b|(这个?|本)周末", _weekend(0)),
        (r"\b(next weekend|nächstes wochenende)\b|下个?周末", _weekend(1)),
        (r"\b(this month|diese[nm] monat|ce mois(-ci)?|este mes)\b|这个月|本月", _month(0)),
        (r"\b(last month|letzte[nm] monat|le mois dernier|el mes pasado)\b|(?<!上)上个?月", _month(-1)),
        (r"\b(next month|nächsten monat|le mois prochain|el próximo mes)\b|下个?月", _month(1)),
        (r"\b(this year|dieses jahr|cette année|este año)\b", _year(0)),
        (r"\b(last year|letztes jahr|l'année dernière|el año pasado)\b", _year(-1)),
        (r"\b(next year|nächstes jahr|l'année prochaine|el próximo año)\b", _year(1)),
        (
            rf"\b(?:last|past|previous|letzten|vergangenen|derniers|dernières|últimos|últimas) (?P<number>{_NUMBER}) "
            rf"{_UNITS}\b",
            _last_days,
        ),
        (rf"(?:最近|过去)(?P<number>{_CHINESE_NUMBER}){_CHINESE_UNIT}", _last_days),
        (rf"\b(?P<number>{_NUMBER}) {_UNITS} ago\b", _away(-1)),
        (rf"\b(?:vor|il y a|hace) (?P<number>{_NUMBER}) {_UNITS}\b", _away(-1)),
        (rf"(?<!\d)(?P<number>{_CHINESE_NUMBER}){_CHINESE_UNIT}(?:以|之)?前", _away(-1)),
        (rf"\b(?:in|dans|dentro de) (?:a )?(?P<number>{_NUMBER}) {_UNITS}(?: time)?\b", _away(1)),
        (rf"(?<!\d)(?P<number>{_CHINESE_NUMBER}){_CHINESE_UNIT}(?:以|之)?后(?!来)", _away(1)),
        (
            rf"\b(?:(?:on|last|next|this|am|letzten|vergangenen|nächsten|kommenden) )?(?P<day>{_LATIN_DAY})\b",
            _weekday,
        ),
        (
            rf"(?P<which>上上个?|上个?|下下个?|下个?|这个?|本)?(?P<day>{_CHINESE_WEEK}[一二三四五六日天])",
            _chinese_weekday,
        ),
        (
            rf"\b(?:in|of|during|since|last|this|next|early|late|im|letzten|en) (?P<month>{_MONTH})\b"
            rf"(?!,? \d{{1,2}}\b)(?:,?(?: of)? (?P<year>{_YEAR})\b)?",
            _named_month,
        ),
        (rf"\b(?P<month>{_MONTH}),?(?: of| de)? (?P<year>{_YEAR})\b", _named_month),
        (rf"\b{_DAY_OF}(?:,?(?: de)? (?P<year>{_YEAR})\b)?", _named_day),
        (
            rf"\b(?P<month>{_MONTH}) (?:the )?(?P<date>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?\b"
            rf"(?:,? (?P<year>{_YEAR})\b)?",
            _named_day,
        ),
        (rf"(?<![\d.-])(?P<year>{_YEAR})[-/.](?P<month>\d{{1,2}})[-/.](?P<date>\d{{1,2}})(?![\d-])", _numeric_day),
        (rf"(?<![\d.])(?P<date>\d{{1,2}})\. ?(?P<month>\d{{1,2}})\. ?(?P<year>{_YEAR})(?!\d)", _numeric_day),
        (rf"\b(?:in|during|since|im jahr|en) (?P<year>{_YEAR})\b", lambda _, match: _of_year(int(match["year"]))),
        (
            rf"(?<!\d)(?P<year>{_YEAR}年|去年|前年|今年|明年)"
            rf"(?:的?(?P<month>{_CHINESE_MONTH})份?(?:(?P<date>[\d十{_CHINESE_DIGITS}]{{1,3}}[日号]))?)?",
            _chinese_date,
        ),
        (
            rf"(?<![\d年个十])(?P<year>(?!))?(?P<month>{_CHINESE_MONTH})份?"
            rf"(?P<date>[\d十{_CHINESE_DIGITS}]{{1,3}}[日号])?",
            _chinese_date,
        ),
    )
)
