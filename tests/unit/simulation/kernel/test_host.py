"""A host hands stimuli to its machine, performs its effects, and loses both in a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lavant.core.errors import StorageFull
from lavant.simulation.kernel import host as host_module
from lavant.simulation.kernel.disk.disk import DiskConfig
from lavant.simulation.kernel.distributions import MS, Constant, S
from lavant.simulation.kernel.host import START_MS, Host
from lavant.simulation.kernel.machine import (
    Arrived,
    Background,
    BackgroundFinished,
    Commit,
    Effect,
    Halt,
    Note,
    SendPacket,
    Stimulus,
    TimerDue,
    WorkRequested,
    WriteFailed,
    Written,
)
from lavant.simulation.kernel.network import LinkConfig
from lavant.simulation.kernel.world import World

RESTART_US = 500 * MS
COMMIT_US = 2 * MS
DISK = DiskConfig(write_us=Constant(1 * MS), sync_us=Constant(1 * MS))


class Machine:
    """Does what it is asked for; notes everything else."""

    def __init__(self, wakeup_ms: int | None = None) -> None:
        self.wants_ms = wakeup_ms
        self.seen: list[tuple[Stimulus, int]] = []

    def handle(self, stimulus: Stimulus, now_ms: int, /) -> list[Effect]:
        self.seen.append((stimulus, now_ms))
        if isinstance(stimulus, TimerDue):
            self.wants_ms = None
        if isinstance(stimulus, WorkRequested) and callable(stimulus.value):
            effects: list[Effect] = stimulus.value(self)
            return effects
        return []

    def wakeup_ms(self) -> int | None:
        return self.wants_ms


class Bench:
    """A world with a host that is looked at, and another to talk to."""

    def __init__(self, *, wakeup_ms: int | None = None, is_steady: bool = True) -> None:
        self.world = World(1, work_us=3600 * S)
        self.world.links(LinkConfig(delay_us=Constant(1 * MS)))
        self.machines: list[Machine] = []
        self.notes: list[tuple[int, Any]] = []

        def boot(host: Host) -> Machine:
            self.machines.append(Machine(wakeup_ms))
            return self.machines[-1]

        self.host = self.world.host(
            "one",
            boot,
            disk=DISK,
            restart_us=Constant(RESTART_US),
            is_steady=is_steady,
            note=lambda host, value: self.notes.append((self.world.now_us, value)),
        )
        self.host.disk._put("log", bytes(4096))  # without taking time
        self.other = Machine()
        self.world.host("other", lambda host: self.other)
        self.run(until_us=0)

    def run(self, until_us: int) -> Bench:
        self.world.stage.calendar.run(until_us=until_us, events_max=100_000)
        self.world.stage.calendar.now_us = until_us
        return self

    def ask(self, *effects: Effect, before: Callable[[Machine], object] = id) -> bool:
        def act(machine: Machine) -> list[Effect]:
            before(machine)
            return list(effects)

        return self.host.stimulate(WorkRequested(act))

    @property
    def stimuli(self) -> list[Stimulus]:
        """What the machine that runs now has handled."""
        return [stimulus for stimulus, _ in self.machines[-1].seen]


# ── stimuli and effects ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_packet_arrives_at_the_other_host() -> None:
    bench = Bench()
    bench.ask(SendPacket("other", "hello"))
    bench.run(1 * MS)
    assert bench.other.seen == [(Arrived("one", "hello"), START_MS + 1)]


def test_a_note_goes_to_the_scenario() -> None:
    bench = Bench()
    bench.ask(Note("noted"))
    assert bench.notes == [(0, "noted")]


def test_a_commit_is_durable_when_the_machine_hears_of_it() -> None:
    bench = Bench()
    bench.ask(Commit("log", 0, b"data", tag="t"))
    bench.run(COMMIT_US - 1)
    assert bench.host.disk.durable("log")[:4] == bytes(4)
    assert Written("t") not in bench.stimuli
    bench.run(COMMIT_US)
    assert bench.stimuli[-1] == Written("t")
    assert bench.host.disk.durable("log")[:4] == b"data"


def test_a_commit_that_the_disk_does_not_take_fails_after_a_while() -> None:
    bench = Bench()
    bench.host.disk.error = "broken"
    bench.ask(Commit("log", 0, b"data", tag="t"))
    bench.run(COMMIT_US)
    assert bench.stimuli[-1] == WriteFailed("t", "[Errno 5] disk one: broken")


def test_a_commit_whose_sync_fails_is_not_confirmed() -> None:
    bench = Bench()
    bench.ask(Commit("log", 0, b"data", tag="t"))
    bench.host.disk.error = "broken"
    bench.run(COMMIT_US)
    assert isinstance(bench.stimuli[-1], WriteFailed)
    assert bench.host.disk.durable("log")[:4] == bytes(4)


def test_what_runs_in_the_background_takes_its_time_while_the_machine_goes_on() -> None:
    bench = Bench()
    bench.ask(Background(lambda: bench.host.disk.create("more", 10), tag="t"))
    bench.ask(Note("not busy"))
    assert bench.notes == [(0, "not busy")]
    bench.run(1 * MS - 1)
    assert BackgroundFinished("t", None) not in bench.stimuli
    bench.run(1 * MS)
    assert bench.stimuli[-1] == BackgroundFinished("t", None)


def test_an_error_in_the_background_comes_with_its_end() -> None:
    bench = Bench()
    bench.host.disk.fill()
    bench.ask(Background(lambda: bench.host.disk.create("more", 10), tag="t"))
    bench.run(1)
    finished = bench.stimuli[-1]
    assert isinstance(finished, BackgroundFinished)
    assert isinstance(finished.error, StorageFull)


# ── busy ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_machine_that_uses_the_disk_itself_is_busy_for_so_long() -> None:
    bench = Bench()
    bench.ask(Note("synced"), before=lambda machine: bench.host.disk.sync("log"))
    bench.ask(Note("waited"))
    bench.ask(Note("waited too"))
    assert bench.notes == []
    bench.run(1 * MS)
    assert bench.notes == [(1 * MS, "synced"), (1 * MS, "waited"), (1 * MS, "waited too")]


def test_what_waits_is_handled_in_order_even_if_it_makes_busy_again() -> None:
    bench = Bench()
    for number in range(3):
        bench.ask(Note(number), before=lambda machine: bench.host.disk.sync("log"))
    bench.run(10 * MS)
    assert bench.notes == [(1 * MS, 0), (2 * MS, 1), (3 * MS, 2)]


def test_a_paused_host_does_everything_later_and_in_order() -> None:
    bench = Bench()
    bench.ask(Note("begun"), before=lambda machine: bench.host.disk.sync("log"))
    bench.host.pause(50 * MS)
    bench.ask(Note("later"))
    bench.run(100 * MS)
    assert bench.notes == [(50 * MS, "begun"), (50 * MS, "later")]


def test_a_pause_that_is_shorter_than_what_it_is_busy_with_changes_nothing() -> None:
    bench = Bench()
    bench.host.pause(50 * MS)
    bench.host.pause(10 * MS)
    bench.ask(Note("later"))
    bench.run(100 * MS)
    assert bench.notes == [(50 * MS, "later")]


def test_a_host_that_resumes_is_done_at_once() -> None:
    bench = Bench()
    bench.ask(Note("begun"), before=lambda machine: bench.host.disk.sync("log"))
    bench.host.pause(50 * MS)
    bench.ask(Note("later"))
    bench.host.resume()
    bench.host.resume()
    bench.run(100 * MS)
    assert bench.notes == [(0, "begun"), (0, "later")]


def test_too_many_waiting_stimuli_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "WAITING_MAX", 2)
    bench = Bench()
    bench.host.pause(50 * MS)
    bench.ask()
    bench.ask()
    with pytest.raises(Exception, match="2 stimuli wait for host one, which is busy at 0 µs"):
        bench.ask()


# ── timers and clocks ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_machine_is_woken_when_its_clock_shows_what_it_said() -> None:
    bench = Bench(wakeup_ms=START_MS + 2_500)
    bench.run(10 * S)
    assert bench.machines[0].seen == [(TimerDue(), START_MS + 2_500)]


def test_a_machine_that_wants_to_be_woken_earlier_is() -> None:
    bench = Bench(wakeup_ms=START_MS + 900)

    def hurry(machine: Machine) -> None:
        machine.wants_ms = START_MS + 100

    bench.ask(before=hurry)
    bench.run(10 * S)
    assert [now_ms for stimulus, now_ms in bench.machines[0].seen if stimulus == TimerDue()] == [START_MS + 100]


def test_a_machine_that_no_longer_wants_to_be_woken_is_not() -> None:
    bench = Bench(wakeup_ms=START_MS + 900)

    def forget(machine: Machine) -> None:
        machine.wants_ms = None

    bench.ask(before=forget)
    bench.run(10 * S)
    assert TimerDue() not in bench.stimuli


def test_a_busy_machine_is_woken_afterwards() -> None:
    bench = Bench(wakeup_ms=START_MS + 10)
    bench.host.pause(50 * MS)
    bench.run(1 * S)
    assert bench.machines[0].seen == [(TimerDue(), START_MS + 50)]


def test_a_steady_host_takes_no_notice_of_a_jump_until_it_restarts() -> None:
    bench = Bench(wakeup_ms=START_MS + 5_000)
    bench.host.clock.jump(-3_600_000, now_us=0)
    bench.run(6 * S)
    assert bench.machines[0].seen == [(TimerDue(), START_MS + 5_000)]
    bench.host.crash(power=False)
    bench.run(6 * S + RESTART_US)
    assert bench.host.now_ms == START_MS + 6_500 - 3_600_000


def test_another_host_sees_a_jump_at_once_and_is_woken_within_a_second() -> None:
    bench = Bench(wakeup_ms=START_MS + 60_000, is_steady=False)
    bench.host.clock.jump(3_600_000, now_us=0)
    bench.run(10 * S)
    assert bench.machines[0].seen == [(TimerDue(), START_MS + 3_601_000)]


def test_a_clock_that_runs_slow_wakes_late() -> None:
    bench = Bench()
    bench.host.clock.drift(-100_000, now_us=0)

    def want(machine: Machine) -> None:
        machine.wants_ms = START_MS + 900

    bench.ask(Note("set"), before=want)
    bench.run(1 * S - 1)
    assert TimerDue() not in bench.stimuli
    bench.run(1 * S)
    assert bench.machines[0].seen[-1] == (TimerDue(), START_MS + 900)


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_crash_a_new_machine_is_made_from_the_disk() -> None:
    bench = Bench()
    bench.host.crash(power=True)
    assert not bench.host.is_up
    bench.run(RESTART_US - 1)
    assert not bench.host.is_up
    bench.run(RESTART_US)
    assert (bench.host.is_up, bench.host.incarnation, len(bench.machines)) == (True, 2, 2)
    assert bench.stimuli == []


def test_a_host_that_is_down_takes_no_stimuli() -> None:
    bench = Bench()
    bench.host.crash(power=True)
    assert not bench.ask(Note("nobody"))
    bench.run(1 * S)
    assert bench.notes == []


def test_timer_and_waiting_stimuli_and_effects_are_gone_with_a_crash() -> None:
    bench = Bench(wakeup_ms=START_MS + 700)
    bench.ask(Note("under way"), before=lambda machine: bench.host.disk.sync("log"))
    bench.ask(Note("waiting"))
    bench.host.crash(power=True)
    bench.run(RESTART_US)
    bench.machines[-1].wants_ms = None
    bench.run(10 * S)
    assert (bench.notes, bench.stimuli) == ([], [])


def test_after_a_crash_only_the_restart_is_left_to_come() -> None:
    bench = Bench(wakeup_ms=START_MS + 700)
    bench.ask(before=lambda machine: bench.host.disk.sync("log"))
    bench.host.crash(power=True)
    assert len(bench.world.stage.calendar) == 1


def test_a_commit_under_way_in_a_crash_is_never_confirmed() -> None:
    bench = Bench()
    bench.ask(Commit("log", 0, b"data", tag="t"))
    bench.run(1 * MS)
    bench.host.crash(power=True)
    bench.host.start()
    bench.run(10 * S)
    assert Written("t") not in bench.stimuli
    assert bench.host.disk.durable("log")[:4] in (b"data", bytes(4))


def test_what_runs_in_the_background_does_not_outlive_a_crash() -> None:
    bench = Bench()
    bench.ask(Background(lambda: bench.host.disk.create("more", 10), tag="t"))
    bench.host.crash(power=False)
    bench.host.start()
    bench.run(10 * S)
    assert bench.stimuli == []


def test_a_process_that_dies_loses_nothing_that_was_written_but_makes_nothing_durable() -> None:
    bench = Bench()
    bench.ask(Commit("log", 0, b"data", tag="t"))
    bench.host.crash(power=False)
    bench.run(10 * S)
    assert bench.host.disk.content("log")[:4] == b"data"
    assert bench.host.disk.durable("log")[:4] == bytes(4)


def test_a_machine_can_give_up_and_is_started_again() -> None:
    bench = Bench()
    bench.ask(Note("before"), Halt("no reason"), Note("after"))
    assert (bench.notes, bench.host.is_up) == ([(0, "before")], False)
    bench.run(RESTART_US)
    assert bench.host.is_up


def test_a_host_that_was_started_by_hand_is_not_started_again() -> None:
    bench = Bench()
    bench.host.crash(power=True)
    bench.host.start()
    bench.run(10 * S)
    assert bench.host.incarnation == 2


def test_a_strike_in_the_machines_own_use_of_the_disk_crashes_the_host() -> None:
    bench = Bench()
    bench.host.disk.strike_in(1, power=True)
    bench.ask(Note("never"), before=lambda machine: bench.host.disk.sync("log"))
    assert not bench.host.is_up
    bench.run(RESTART_US)
    assert (bench.notes, bench.host.is_up) == ([], True)


def test_a_strike_in_a_commit_crashes_the_host_before_it_is_confirmed() -> None:
    for number in range(20):
        bench = Bench()
        for _ in range(number):
            bench.host._random.random()
        bench.host.disk.strike_in(1, power=True)
        bench.ask(Commit("log", 0, b"data", tag="t"))
        bench.run(COMMIT_US)
        assert not bench.host.is_up
        assert len(bench.machines[0].seen) == 1


def test_a_strike_in_the_background_crashes_the_host() -> None:
    bench = Bench()
    bench.host.disk.strike_in(1, power=False)
    bench.ask(Background(lambda: bench.host.disk.create("more", 10), tag="t"), Note("never"))
    assert (bench.host.is_up, bench.notes) == (False, [])


def test_a_strike_while_booting_makes_it_boot_again() -> None:
    world = World(1, work_us=10 * S)
    boots: list[int] = []

    def boot(host: Host) -> Machine:
        boots.append(world.now_us)
        host.disk.replace("log", [b"x"])
        return Machine()

    host = world.host("one", boot, restart_us=Constant(RESTART_US))
    host.disk.strike_in(1, power=True)
    host.disk.strike_in(1, power=False)
    assert world.run() is None
    assert boots == [0, RESTART_US, 2 * RESTART_US]
