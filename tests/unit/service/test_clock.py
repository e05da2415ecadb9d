"""Time only goes on."""

from __future__ import annotations

from lavant.service.clock import Clock

MS = 1_000_000


class Times:
    """A wall clock and a steady one, set by hand."""

    def __init__(self, wall_ms: int, steady_ms: int = 0) -> None:
        self.wall_ms = wall_ms
        self.steady_ms = steady_ms

    def clock(self, recovered_ms: int = 0) -> Clock:
        return Clock(recovered_ms, wall_ns=lambda: self.wall_ms * MS, steady_ns=lambda: self.steady_ms * MS)


def test_it_starts_at_the_walls_time_and_runs_with_the_steady_one() -> None:
    times = Times(wall_ms=1_000_000, steady_ms=500)
    clock = times.clock()
    assert clock.now_ms() == 1_000_000
    times.steady_ms += 250
    assert clock.now_ms() == 1_000_250


def test_a_wall_clock_that_jumps_while_the_server_runs_does_not_matter() -> None:
    times = Times(wall_ms=1_000_000)
    clock = times.clock()
    for wall_ms in (0, 10**12, 5):
        times.wall_ms = wall_ms
        times.steady_ms += 10
    assert clock.now_ms() == 1_000_030


def test_a_wall_clock_that_was_set_back_does_not_take_time_back() -> None:
    assert Times(wall_ms=1_000_000).clock(recovered_ms=1_005_000).now_ms() == 1_005_000


def test_a_wall_clock_that_went_on_while_the_server_was_down_counts() -> None:
    assert Times(wall_ms=2_000_000).clock(recovered_ms=1_005_000).now_ms() == 2_000_000


def test_a_timer_never_fires_before_its_time() -> None:
    times = Times(wall_ms=1_000_000, steady_ms=500)
    clock = times.clock()
    assert clock.seconds_until(1_000_040) == 0.04
    assert clock.seconds_until(999_000) == 0
    times.steady_ms += 40
    assert clock.now_ms() == 1_000_040
