"""When a client tries again."""

from __future__ import annotations

from itertools import islice

import pytest

from lavant.client.connection.retries import NO_RETRIES, STARTING_S, Pauses, Retries
from lavant.core.errors import ConnectionLost, LavantError, MissingComponent, NotReady


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_pauses_double_up_to_a_bound() -> None:
    pauses_s = islice(Retries(first_s=0.1, longest_s=1.0).pauses_s(Clock()), 8)
    for pause_s, longest_s in zip(pauses_s, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0), strict=True):
        assert longest_s / 2 <= pause_s <= longest_s


def test_there_are_no_more_when_the_time_is_over() -> None:
    clock = Clock()
    pauses_s = Retries(within_s=10).pauses_s(clock)
    next(pauses_s)
    clock.now_s += 9.9
    next(pauses_s)
    clock.now_s += 0.1
    assert next(pauses_s, None) is None


def test_no_retries_are_none() -> None:
    assert list(NO_RETRIES.pauses_s()) == []


def test_a_server_that_is_starting_is_waited_for_longer_than_one_that_is_gone() -> None:
    clock = Clock()
    pauses = Pauses(Retries(within_s=10), clock)
    assert pauses.after_s(NotReady("starting")) is not None
    clock.now_s += STARTING_S - 1
    assert pauses.after_s(NotReady("starting")) is not None
    assert pauses.after_s(ConnectionLost("gone")) is not None, "its own time begins when it is first gone"
    clock.now_s += 5
    assert pauses.after_s(NotReady("starting")) is None
    assert pauses.after_s(MissingComponent("gone")) is not None
    clock.now_s += 5
    assert pauses.after_s(ConnectionLost("gone")) is None


@pytest.mark.parametrize("error", [NotReady("starting"), ConnectionLost("gone")])
def test_without_retries_nothing_is_waited_for(error: LavantError) -> None:
    assert Pauses(NO_RETRIES).after_s(error) is None
