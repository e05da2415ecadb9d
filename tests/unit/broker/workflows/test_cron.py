"""Cron expressions: the next time is the first minute that fits, as trying every minute finds it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.workflows.cron import Cron
from lavant.core.errors import InvalidValue

START = datetime(2026, 2, 26, 22, 30, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return round(moment.timestamp()) * 1000


def fits(cron: Cron, moment: datetime) -> bool:
    day, week = moment.day in cron.days, moment.isoweekday() % 7 in cron.weekdays
    return (
        moment.minute in cron.minutes
        and moment.hour in cron.hours
        and moment.month in cron.months
        and ((day or week) if cron.is_either_day else (day and week))
    )


minutes = st.sampled_from(["*", "0", "*/20", "7,9-11", "58/1", "0-30/10"])
hours = st.sampled_from(["*", "0", "23", "9-17", "*/6"])
days = st.sampled_from(["*", "1", "28", "*/2", "27-31"])
months = st.sampled_from(["*", "2", "mar", "2-3", "feb,mar"])
weekdays = st.sampled_from(["*", "0", "7", "mon-fri", "sun", "1,3,5"])


@given(
    st.tuples(minutes, hours, days, months, weekdays).map(" ".join),
    st.integers(min_value=0, max_value=3 * 24 * 60 * 60),
)
def test_the_next_time_is_the_first_that_fits(text: str, later_s: int) -> None:
    cron, now = Cron.parse(text), START + timedelta(seconds=later_s)
    found = cron.next_ms(ms(now))
    assert found > ms(now)
    moment = datetime.fromtimestamp(found / 1000, UTC)
    assert fits(cron, moment)
    tried = now.replace(second=0) + timedelta(minutes=1)
    for _ in range(3000):  # two days; later ones are only checked to fit
        if tried >= moment:
            break
        assert not fits(cron, tried)
        tried += timedelta(minutes=1)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *"],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"cron|of|field"):
        Cron.parse(text)


@pytest.mark.parametrize(
    "text", ["a * * * *", "*/0 * * * *", "*/x * * * *", "1- * * * *", ", * * * *", "9999 * * * *", "1" * 300]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Cron.parse(text)


def test_a_day_that_never_comes_is_refused() -> None:
    with pytest.raises(InvalidValue, match="never"):
        Cron.parse("0 0 30 2 *").next_ms(ms(START))
    leap = Cron.parse("0 0 29 2 *").next_ms(ms(START))
    assert datetime.fromtimestamp(leap / 1000, UTC) == datetime(2028, 2, 29, tzinfo=UTC)
