"""A world runs until its end or the first violation, and calms down before."""

from __future__ import annotations

from io import StringIO

import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel import world as world_module
from lavant.simulation.kernel.distributions import Constant, S
from lavant.simulation.kernel.host import Host
from lavant.simulation.kernel.machine import Effect, Stimulus, WorkRequested
from lavant.simulation.kernel.trace import Trace
from lavant.simulation.kernel.world import World


class Silent:
    def __init__(self, wakeup_ms: int | None = None) -> None:
        self._wakeup_ms = wakeup_ms

    def handle(self, stimulus: Stimulus, now_ms: int, /) -> list[Effect]:
        if isinstance(stimulus, WorkRequested):
            raise KeyError(stimulus.value)
        return []

    def wakeup_ms(self) -> int | None:
        return self._wakeup_ms


def new_world(*, work_us: int = 10 * S, calm_us: int = 5 * S, trace: Trace | None = None) -> World:
    return World(1, work_us=work_us, calm_us=calm_us, trace=trace)


# ── invariants ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_world_in_which_all_holds_runs_to_its_end() -> None:
    world = new_world()
    checks: list[int] = []
    world.invariant("holds", lambda: checks.append(world.now_us))
    assert world.run() is None
    assert world.now_us == checks[-1] == 15 * S


def test_an_invariant_is_checked_after_each_event_and_stops_the_run_there() -> None:
    world = new_world()
    seen: list[int] = []
    for time_us in range(10):
        world.at(time_us, seen.append, time_us)
    world.invariant("few", lambda: f"{len(seen)} are too many" if len(seen) > 3 else None)
    violation = world.run()
    assert violation is not None
    assert (violation.invariant, violation.what, violation.time_us) == ("few", "4 are too many", 3)
    assert seen == [0, 1, 2, 3]


def test_an_invariant_may_be_checked_at_an_interval_after_all_that_happens_then() -> None:
    world = new_world()
    seen: list[str] = []
    world.invariant("now and then", lambda: seen.append("check"), every_us=4 * S)
    world.at(4 * S, seen.append, "event")
    assert world.run() is None
    assert seen == ["event", "check", "check", "check", "check"]  # at 4, 8 and 12 s, and at the end


def test_what_must_hold_at_the_end_is_checked_only_then() -> None:
    world = new_world()
    is_done: list[bool] = []
    world.at(14 * S, is_done.append, True)
    world.at_end("done", lambda: None if is_done else "not done")
    assert world.run() is None

    world = new_world()
    world.at_end("done", lambda: "not done")
    violation = world.run()
    assert violation is not None
    assert (violation.invariant, violation.time_us) == ("done", 15 * S)


def test_anything_can_end_the_run() -> None:
    world = new_world()
    world.at(3, world.violated, "impossible", "seen anyway")
    world.at(4, pytest.fail, "it went on")
    violation = world.run()
    assert violation is not None
    assert (violation.invariant, violation.what, violation.time_us) == ("impossible", "seen anyway", 3)


def test_an_unexpected_error_is_a_violation_with_its_traceback() -> None:
    world = new_world()
    host = world.host("one", lambda host: Silent())
    world.at(5, host.stimulate, WorkRequested("key"))
    violation = world.run()
    assert violation is not None
    assert (violation.invariant, violation.what) == ("no machine fails", "KeyError: 'key'")
    assert "raise KeyError(stimulus.value)" in violation.traceback


def test_an_error_that_shows_an_address_is_still_a_violation() -> None:
    world = new_world(trace=Trace())
    host = world.host("one", lambda host: Silent())
    world.at(5, host.stimulate, WorkRequested(Silent()))
    violation = world.run()
    assert violation is not None
    assert "give the value a __repr__" in violation.what
    assert " at 0x" not in violation.what


def test_events_without_end_at_one_time_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "EVENTS_AT_ONCE_MAX", 100)
    world = new_world()
    world.host("spins", lambda host: Silent(wakeup_ms=0))
    violation = world.run()
    assert violation is not None
    assert violation.invariant == "time goes on"
    assert violation.time_us == 0


def test_many_events_in_a_row_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "EVENTS_AT_ONCE_MAX", 100)
    world = new_world()
    for time_us in range(1000):
        world.at(time_us, int)
    assert world.run() is None


def test_the_violation_is_the_last_line_of_the_trace() -> None:
    trace = Trace()
    world = new_world(trace=trace)
    world.at(3, world.violated, "impossible", "seen anyway")
    world.run()
    assert trace.last(1) == ["0.000003 VIOLATED impossible: seen anyway"]


# ── work and calm ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_work_arrives_until_the_calm() -> None:
    world = new_world()
    times: list[int] = []
    world.arrivals("work", Constant(3 * S), lambda random: times.append(world.now_us))
    world.run()
    assert times == [3 * S, 6 * S, 9 * S]


def test_arrivals_have_a_stream_for_gaps_and_one_for_their_work() -> None:
    def drawn(count: int) -> tuple[list[int], list[float]]:
        world = new_world()
        times: list[int] = []
        values: list[float] = []

        def act(random) -> None:  # type: ignore[no-untyped-def]
            times.append(world.now_us)
            values.extend(random.random() for _ in range(count))

        world.arrivals("work", world_module.RESTART_US, act)
        world.run()
        return times, values

    (times, values), (times_again, more_values) = drawn(1), drawn(2)
    assert times == times_again
    assert values == more_values[: len(values)]


def test_at_the_calm_everything_is_healed() -> None:
    world = new_world()
    host = world.host("one", lambda host: Silent(), restart_us=Constant(3600 * S))

    def spoil() -> None:
        host.disk.fill()
        host.disk.slowness = 10
        host.disk.error = "broken"
        host.clock.jump(1000, now_us=world.now_us)
        host.crash(power=True)

    states: list[tuple[bool, int, str | None, int]] = []
    world.at(1 * S, spoil)
    world.at_calm(lambda: states.append((host.is_up, host.disk.slowness, host.disk.error, host.clock.jumped_us)))
    assert world.run() is None
    assert states == [(True, 1, None, 0)]
    host.disk.create("room", 1)


def test_at_the_calm_a_paused_host_goes_on() -> None:
    world = new_world()
    host = world.host("one", lambda host: Silent())
    world.at(1 * S, host.pause, 3600 * S)
    world.at(2 * S, host.stimulate, WorkRequested("key"))
    violation = world.run()
    assert violation is not None
    assert (violation.what, violation.time_us) == ("KeyError: 'key'", world.calm_us)


# ── the trace, and mistakes ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_trace_changes_nothing() -> None:
    def times(trace: Trace | None) -> list[int]:
        world = new_world(trace=trace)
        found: list[int] = []
        host = world.host("one", lambda host: Silent())
        world.arrivals("work", world_module.RESTART_US, lambda random: found.append(host.now_ms))
        world.at(5 * S, lambda: host.crash(power=True))
        world.run()
        return found

    file = StringIO()
    trace = Trace(file)
    assert times(trace) == times(None)
    trace.digest()
    assert file.getvalue().startswith("0.000000 one boots 1\n")


def test_two_of_one_name_are_refused() -> None:
    world = new_world()
    boot = lambda host: Silent()  # noqa: E731
    world.host("one", boot)
    with pytest.raises(InvalidValue, match="there is a host 'one' already"):
        world.host("one", boot)
    world.invariant("holds", lambda: None)
    with pytest.raises(InvalidValue, match="there is an invariant 'holds' already"):
        world.at_end("holds", lambda: None)


def test_times_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidValue, match="got 0 and 5000000 µs"):
        new_world(work_us=0)
    with pytest.raises(InvalidValue, match="'often' must be checked every 1 µs or more, got 0"):
        new_world().invariant("often", lambda: None, every_us=0)


def test_a_host_boots_with_its_own_disk() -> None:
    world = new_world()
    disks: list[str] = []

    def boot(host: Host) -> Silent:
        disks.append(host.disk.name)
        return Silent()

    world.host("one", boot)
    world.host("two", boot)
    world.run()
    assert disks == ["one", "two"]
