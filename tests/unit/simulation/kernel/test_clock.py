"""A host's clock jumps and drifts, and says when it will show a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lavant.simulation.kernel.host import START_MS, SimulatedClock

S = 1_000_000


def test_a_clock_that_nobody_touches_is_right() -> None:
    assert SimulatedClock().now_ms(90 * S) == START_MS + 90_000


def test_a_jump_stays() -> None:
    clock = SimulatedClock()
    clock.jump(-5_000, now_us=10 * S)
    assert clock.now_ms(10 * S) == START_MS + 5_000
    assert clock.now_ms(20 * S) == START_MS + 15_000
    assert clock.jumped_us == -5 * S


def test_a_drift_grows_from_when_it_began_and_stays_when_it_ends() -> None:
    clock = SimulatedClock()
    clock.drift(1_000, now_us=100 * S)
    assert clock.now_ms(100 * S) == START_MS + 100_000
    assert clock.now_ms(200 * S) == START_MS + 200_100
    clock.drift(0, now_us=200 * S)
    assert clock.now_ms(300 * S) == START_MS + 300_100
    assert clock.jumped_us == 0


def test_a_corrected_clock_is_right_and_has_jumped() -> None:
    clock = SimulatedClock()
    clock.jump(7_000, now_us=1 * S)
    clock.drift(500, now_us=2 * S)
    clock.correct(now_us=10 * S)
    assert clock.now_ms(10 * S) == START_MS + 10_000
    assert clock.now_ms(60 * S) == START_MS + 60_000
    assert clock.jumped_us == -8 * 500  # the drift; the jump forward and back is none


def test_who_leaves_out_the_jumps_sees_time_run_on() -> None:
    clock = SimulatedClock()
    clock.jump(-60_000, now_us=10 * S)
    assert clock.now_ms(11 * S, without_us=clock.jumped_us) == START_MS + 11_000
    assert clock.until_us(START_MS + 12_000, 11 * S, without_us=clock.jumped_us) == 1 * S


@given(
    ppm=st.integers(-500_000, 500_000),
    since_us=st.integers(0, 10**9),
    now_us=st.integers(0, 10**9),
    ahead_ms=st.integers(-1000, 100_000),
    without_us=st.integers(-(10**7), 10**7),
)
def test_the_time_until_is_enough_and_a_microsecond_less_is_not(
    ppm: int, since_us: int, now_us: int, ahead_ms: int, without_us: int
) -> None:
    clock = SimulatedClock()
    clock.drift(ppm, now_us=since_us)
    now_us += since_us
    wanted_ms = clock.now_ms(now_us, without_us=without_us) + ahead_ms
    until_us = clock.until_us(wanted_ms, now_us, without_us=without_us)
    assert clock.now_ms(now_us + until_us, without_us=without_us) >= wanted_ms
    if until_us:
        assert clock.now_ms(now_us + until_us - 1, without_us=without_us) < wanted_ms
