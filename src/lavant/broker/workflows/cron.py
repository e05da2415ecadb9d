"""Cron expressions: when a schedule fires, in UTC.

    minute hour day-of-month month day-of-week
    0-59   0-23 1-31         1-12  0-7, 0 and 7 are Sunday

Each field is `*`, a number or a name (`mon`, `jan`), a range `1-5`, a step `*/15` or `0-30/10`, or a list of these. As
in cron, a day fits if either of its two fields fits, if both are restricted. `@hourly`, `@daily`, `@weekly`, `@monthly`
and `@yearly` are short for the usual ones.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from lavant.core.errors import InvalidValue

DAYS_AHEAD_MAX = 366 * 9
"""A 29 February is at most eight years away."""
CHARACTERS_MAX = 200
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class _Field(NamedTuple):
    name: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()
    """Names of the values, from the lowest."""


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


class Cron(NamedTuple):
    """A parsed expression."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    is_either_day: bool
    """Both fields of days are restricted: one that fits is enough."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """
        >>> Cron.parse("*/20 9-17 * * mon-fri").minutes
        (0, 20, 40)
        >>> Cron.parse("61 * * * *")
        Traceback (most recent call last):
        lavant.core.errors.InvalidValue: minute '61' of '61 * * * *' must be between 0 and 59
        """
        if len(text) > CHARACTERS_MAX:
            raise InvalidValue(f"a cron expression has at most {CHARACTERS_MAX} characters, got {len(text)}")
        fields = SHORT.get(text.strip().lower(), text).split()
        if len(fields) != len(_FIELDS):
            raise InvalidValue(
                f"a cron expression has five fields (minute hour day month weekday), such as '0 9 * * mon-fri', or is "
                f"one of {', '.join(SHORT)}; got {text!r}"
            )
        minutes, hours, days, months, weekdays = (
            _values(part, field, text) for part, field in zip(fields, _FIELDS, strict=True)
        )
        return cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            frozenset(days),
            frozenset(months),
            frozenset(day % 7 for day in weekdays),
            not fields[2].startswith("*") and not fields[4].startswith("*"),
        )

    def next_ms(self, after_ms: int) -> int:
        """The first time after `after_ms`; raises if there is none.

        >>> from datetime import datetime, UTC
        >>> morning = round(datetime(2026, 2, 28, 9, 30, tzinfo=UTC).timestamp() * 1000)
        >>> datetime.fromtimestamp(Cron.parse("0 9 * * *").next_ms(morning) / 1000, UTC).isoformat()
        '2026-03-01T09:00:00+00:00'
        """
        earliest = datetime.fromtimestamp(after_ms // 60_000 * 60, UTC) + timedelta(minutes=1)
        day = earliest.replace(hour=0, minute=0)
        for _ in range(DAYS_AHEAD_MAX):
            if self._fits(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        found = day.replace(hour=hour, minute=minute)
                        if found >= earliest:
                            return round(found.timestamp()) * 1000
            day += timedelta(days=1)
        raise InvalidValue("the cron expression never fires: its months have no such day")

    def _fits(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month or in_week) if self.is_either_day else (in_month and in_week)


def _values(part: str, field: _Field, text: str) -> set[int]:
    found: set[int] = set()
    for each in part.split(","):
        span, slash, step_text = each.partition("/")
        step = int(step_text) if step_text.isdecimal() else 0
        if slash and not 1 <= step <= field.highest:
            raise InvalidValue(f"the step of {field.name} {each!r} of {text!r} must be between 1 and {field.highest}")
        if span == "*":
            first, last = field.lowest, min(field.highest, 6) if field.words is _DAYS else field.highest
        else:
            start, dash, end = span.partition("-")
            first = _value(start, field, text)
            last = _value(end, field, text) if dash else field.highest if slash else first
        if first > last:
            raise InvalidValue(f"{field.name} {each!r} of {text!r} ends before it begins")
        found |= set(range(first, last + 1, step if slash else 1))
    return found


def _value(text: str, field: _Field, whole: str) -> int:
    if text.lower() in field.words:
        return field.lowest + field.words.index(text.lower())
    value = int(text) if text.isdecimal() and len(text) < 4 else -1
    if not field.lowest <= value <= field.highest:
        raise InvalidValue(f"{field.name} {text!r} of {whole!r} must be between {field.lowest} and {field.highest}")
    return value
