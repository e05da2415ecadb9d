"""How long a transfer should take: learnt from those that are almost alone, and not from stalls."""

from __future__ import annotations

from lavant.control.publishing.controllers.eager import RIVALS_MAX, TransferTimes


def known(duration_ms: int = 100) -> TransferTimes:
    times = TransferTimes()
    for _ in range(50):
        times.add(size=1, duration_ms=duration_ms, rivals=0)
    return times


def test_one_stall_says_little() -> None:
    times = known()
    times.add(size=1, duration_ms=100_000, rivals=0)
    assert times.expected_ms(1) < 107
    assert times.strain < 1.04


def test_those_with_many_rivals_teach_nothing() -> None:
    times = known()
    for _ in range(1000):
        times.add(size=1, duration_ms=150, rivals=RIVALS_MAX + 1)
    assert times.expected_ms(1) == 100
    assert 1.49 < times.strain < 1.51


def test_those_that_are_almost_alone_do() -> None:
    times = known()
    for _ in range(1000):
        times.add(size=1, duration_ms=150, rivals=RIVALS_MAX)
    assert 149 < times.expected_ms(1) < 151
    assert 0.99 < times.strain < 1.01


def test_times_below_what_a_clock_can_tell_are_no_times_of_zero() -> None:
    times = known(0)
    assert times.expected_ms(1) == 1
    times.add(size=5, duration_ms=0, rivals=0)
    assert times.strain < 1
