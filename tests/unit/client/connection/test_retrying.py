"""When a client tries again."""

from __future__ import annotations

from itertools import islice

from lavant.client.connection.retrying import NO_RETRIES, Retries


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
