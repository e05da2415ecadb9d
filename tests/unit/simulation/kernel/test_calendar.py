"""Entries happen in the order of time, priority and number, and in no other."""

from __future__ import annotations

import random

import pytest

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.simulation.kernel import calendar as calendar_module
from lavant.simulation.kernel.calendar import FIRST, LAST, NORMAL, Calendar


def run_all(calendar: Calendar) -> int:
    return calendar.run(until_us=10**9, events_max=10**9)


def test_entries_happen_by_time_then_priority_then_number() -> None:
    calendar = Calendar()
    seen: list[tuple[int, int, int]] = []
    entries = [(time_us, priority) for time_us in range(5) for priority in (FIRST, NORMAL, LAST) for _ in range(10)]
    random.Random(1).shuffle(entries)
    for number, (time_us, priority) in enumerate(entries):
        calendar.enter(time_us, seen.append, (time_us, priority, number), priority=priority)
    run_all(calendar)
    assert len(seen) == len(entries)
    assert seen == sorted(seen)


def test_what_cannot_be_compared_may_tie() -> None:
    calendar = Calendar()
    seen: list[str] = []
    calendar.enter(1, lambda: seen.append("first"))
    calendar.enter(1, lambda: seen.append("second"))
    run_all(calendar)
    assert seen == ["first", "second"]


def test_time_is_that_of_the_entry_that_happens() -> None:
    calendar = Calendar()
    seen: list[int] = []
    for time_us in (30, 10, 20):
        calendar.enter(time_us, lambda: seen.append(calendar.now_us))
    run_all(calendar)
    assert seen == [10, 20, 30]


def test_an_entry_for_now_follows_those_that_are_there_for_now() -> None:
    calendar = Calendar()
    seen: list[str] = []
    calendar.enter(5, lambda: calendar.enter(5, seen.append, "entered later"))
    calendar.enter(5, seen.append, "entered before")
    run_all(calendar)
    assert seen == ["entered before", "entered later"]


def test_it_stops_at_the_given_time_and_goes_on_from_there() -> None:
    calendar = Calendar()
    seen: list[int] = []
    for time_us in (1, 2, 3):
        calendar.enter(time_us, seen.append, time_us)
    assert calendar.run(until_us=2, events_max=10) == 2
    assert (seen, len(calendar)) == ([1, 2], 1)
    assert calendar.run(until_us=3, events_max=10) == 1
    assert calendar.events == 3


def test_it_stops_after_the_given_number_of_events() -> None:
    calendar = Calendar()
    for _ in range(5):
        calendar.enter(1, int)
    assert calendar.run(until_us=1, events_max=3) == 3
    assert calendar.run(until_us=1, events_max=3) == 2


def test_after_each_is_called_after_each() -> None:
    calendar = Calendar()
    seen: list[str] = []
    for name in "ab":
        calendar.enter(1, seen.append, name)
    calendar.run(until_us=1, events_max=10, after_each=lambda: seen.append("check"))
    assert seen == ["a", "check", "b", "check"]


def test_events_count_up_to_the_one_that_failed() -> None:
    calendar = Calendar()
    calendar.enter(1, int)
    calendar.enter(2, int, "not a number")
    with pytest.raises(ValueError, match="invalid literal"):
        run_all(calendar)
    assert calendar.events == 2


def test_a_cancelled_entry_does_not_happen_and_does_not_count() -> None:
    calendar = Calendar()
    seen: list[str] = []
    calendar.enter(1, seen.append, "kept")
    entry = calendar.enter(1, seen.append, "cancelled")
    calendar.cancel(entry)
    calendar.cancel(entry)
    assert len(calendar) == 1
    assert run_all(calendar) == 1
    assert (seen, len(calendar)) == (["kept"], 0)


def test_cancelling_what_has_happened_changes_nothing() -> None:
    calendar = Calendar()
    entry = calendar.enter(1, int)
    run_all(calendar)
    calendar.cancel(entry)
    assert len(calendar) == 0


def test_cancelled_entries_do_not_pile_up() -> None:
    calendar = Calendar()
    for _ in range(10_000):
        calendar.cancel(calendar.enter(10**6, int))
    assert len(calendar) == 0
    assert len(calendar._heap) < 200
    assert len(calendar._cancelled) < 200


def test_the_others_keep_their_order_when_cancelled_entries_go() -> None:
    calendar = Calendar()
    seen: list[int] = []
    chance = random.Random(1)
    times = [chance.randrange(1000) for _ in range(2_000)]
    entries = [calendar.enter(time_us, seen.append, time_us) for time_us in times]
    kept = set(chance.sample(range(2_000), 500))
    for number in chance.sample(range(2_000), 2_000):
        if number not in kept:
            calendar.cancel(entries[number])
    assert len(calendar) == 500
    run_all(calendar)
    assert seen == sorted(times[number] for number in kept)


def test_the_past_is_refused() -> None:
    calendar = Calendar()
    calendar.enter(5, int)
    run_all(calendar)
    with pytest.raises(InvalidValue, match="entered for 4 µs, but it is 5 µs already"):
        calendar.enter(4, int)


def test_a_calendar_that_runs_away_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendar_module, "ENTRIES_MAX", 10)
    calendar = Calendar()
    for _ in range(10):
        calendar.enter(1, int)
    with pytest.raises(LimitExceeded, match="more than 10 entries"):
        calendar.enter(1, int)
