"""A host: runs one state machine, with a disk and a clock of its own; it crashes and restarts.

               start()                         crash() or Halt
    down ─────────────────► up (incarnation 1) ─────────────────► down ──── after a while ────► up (incarnation 2) …
                            │  ▲
         sync disk or pause ▼  │ done: effects go out, then waiting stimuli are handled
                            busy

A crash destroys the machine, its timer, the packets on their way to it and, at a power loss, unsynced data. `boot` then
makes a new machine from the disk alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lavant.core.errors import LavantError, LimitExceeded
from lavant.simulation.kernel.calendar import FIRST, Entry
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.disk.disk import Crash, SimulatedDisk
from lavant.simulation.kernel.distributions import Distribution
from lavant.simulation.kernel.machine import (
    Arrived,
    Background,
    BackgroundFinished,
    Commit,
    Effect,
    Halt,
    Machine,
    Note,
    SendPacket,
    Stimulus,
    TimerDue,
    WriteFailed,
    Written,
)
from lavant.simulation.kernel.network import SimulatedNetwork
from lavant.simulation.kernel.trace import shown

START_MS = 1_750_000_000_000
"""The world's start on a correct clock; far from 0, so that backward jumps stay positive."""
DRIFT_PPM_MAX = 500_000
_MILLION = 1_000_000


class SimulatedClock:
    """A host's wall clock, as a function of the world's time.

    >>> clock = SimulatedClock()
    >>> clock.drift(100, now_us=0)
    >>> clock.now_ms(10_000_000) - START_MS
    10001
    >>> clock.jump(-500, now_us=10_000_000)
    >>> clock.now_ms(10_000_000) - START_MS
    9501
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self.drift_ppm = 0
        self.jumped_us = 0
        """The sum of all jumps."""
        self._base_us = 0
        self._shown_us = start_ms * 1000

    def now_ms(self, now_us: int, *, without_us: int = 0) -> int:
        """The time shown; `without_us` is a part of `jumped_us` to leave out."""
        return (self._now_us(now_us) - without_us) // 1000

    def jump(self, by_ms: int, *, now_us: int) -> None:
        self._set(self._now_us(now_us) + by_ms * 1000, now_us)

    def drift(self, ppm: int, *, now_us: int) -> None:
        """From now on the clock gains so many microseconds a second."""
        assert abs(ppm) <= DRIFT_PPM_MAX, "a clock goes forward"
        self._set(self._now_us(now_us), now_us)
        self.drift_ppm = ppm

    def correct(self, *, now_us: int) -> None:
        """Set it right, as a time service would."""
        self._set(START_MS * 1000 + now_us, now_us)
        self.drift_ppm = 0

    def until_us(self, wanted_ms: int, now_us: int, *, without_us: int = 0) -> int:
        """The world's time until `now_ms` is `wanted_ms`, if the clock is not set; 0 if it is past."""
        wanted_us = wanted_ms * 1000 + without_us - self._shown_us
        return max(0, -(-wanted_us * _MILLION // (_MILLION + self.drift_ppm)) - (now_us - self._base_us))

    def _now_us(self, now_us: int) -> int:
        return self._shown_us + (now_us - self._base_us) * (_MILLION + self.drift_ppm) // _MILLION

    def _set(self, shown_us: int, now_us: int) -> None:
        self.jumped_us += shown_us - self._now_us(now_us)
        self._shown_us, self._base_us = shown_us, now_us


WAITING_MAX = 100_000
"""Stimuli that wait for a busy host."""
TIMER_US_MAX = 1_000_000
"""Like a real timer, a host's timer measures a duration, so setting the clock does not move it; a host checks its clock
this often to notice.
"""


class Host:
    """Runs the machine that `boot` makes. `note` gets the values of its `Note` effects."""

    def __init__(
        self,
        stage: SimulationContext,
        network: SimulatedNetwork,
        name: str,
        boot: Boot,
        *,
        disk: SimulatedDisk,
        restart_us: Distribution,
        is_steady: bool,
        note: Callable[[Host, Any], None],
    ) -> None:
        self.name = name
        self.disk = disk
        self.clock = SimulatedClock()
        self.machine: Machine | None = None
        self.incarnation = 0
        self.boots = 1
        """Changes with a power loss, not with the death of a process."""
        self._stage = stage
        self._network = network
        self._boot = boot
        self._restart_us = restart_us
        self._is_steady = is_steady
        self._jumped_us_at_boot = 0
        self._random = stage.randomness.stream(f"host/{name}")
        self._note = note
        self._timer: Entry | None = None
        self._timer_us = 0
        self._business: Entry | None = None
        """While the host is busy: when it is done."""
        self._pending: Sequence[Effect] = ()
        """Effects to perform then."""
        self._waiting: deque[Stimulus] = deque()
        network.attach(name, self)

    @property
    def is_up(self) -> bool:
        return self.machine is not None

    @property
    def now_ms(self) -> int:
        """The time that its machine is told."""
        return self.clock.now_ms(self._stage.calendar.now_us, without_us=self._unseen_us())

    @property
    def wall_ms(self) -> int:
        """The time its clock shows, including jumps."""
        return self.clock.now_ms(self._stage.calendar.now_us)

    @property
    def counted_ms(self) -> int:
        """The time it has counted itself, without jumps."""
        return self.clock.now_ms(self._stage.calendar.now_us, without_us=self.clock.jumped_us)

    # ── up and down ───────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Boot, if it is down."""
        if self.machine is not None:
            return
        self.incarnation += 1
        self._jumped_us_at_boot = self.clock.jumped_us
        self._stage.say(f"{self.name} boots {self.incarnation}")
        try:
            self.machine = self._boot(self)
        except Crash as crash:
            self.crash(power=crash.power)
            return
        self._be_busy(self.disk.take_elapsed_us(), ())

    def crash(self, *, power: bool) -> None:
        """Stop at once and restart after a while; without `power` only the process dies, and nothing written is
        lost.
        """
        self._stage.figures["power losses" if power else "kills"] += 1
        self._stage.say(f"{self.name} {'loses power' if power else 'dies'}")
        self._stop()
        if power:
            self.boots += 1
            self.disk.lose_power()
        else:
            self.disk.take_elapsed_us()
        restart_us = self._stage.now_us + self._restart_us.draw_us(self._random)
        self._stage.calendar.enter(restart_us, self._restart, self.incarnation)

    def pause(self, duration_us: int) -> None:
        """Do nothing for a while, like a starved or stopped machine; everything waits."""
        if self.machine is None:
            return
        self._stage.say(f"{self.name} pauses {duration_us}")
        if self._business is None:
            self._be_busy(duration_us, ())
        elif self._business[0] < self._stage.now_us + duration_us:  # its present work is done then
            self._be_busy(duration_us, self._pending)

    def resume(self) -> None:
        """Finish its present work at once."""
        if self._business is not None:
            self._be_busy(0, self._pending)

    def _restart(self, incarnation: int) -> None:
        if incarnation == self.incarnation:
            self.start()

    def _stop(self) -> None:
        self.machine = None
        self._waiting.clear()
        for entry in (self._timer, self._business):
            if entry is not None:
                self._stage.calendar.cancel(entry)
        self._timer = self._business = None

    # ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, source: str, payload: Any) -> bool:
        return self.stimulate(Arrived(source, payload))

    def stimulate(self, stimulus: Stimulus) -> bool:
        """Pass a stimulus to the machine, now or when it is no longer busy; false if the host is down."""
        if self.machine is None:
            return False
        if self._business is not None:
            self._wait(stimulus)
        else:
            self._handle(stimulus)
        return True

    def _wait(self, stimulus: Stimulus) -> None:
        if len(self._waiting) >= WAITING_MAX:
            raise LimitExceeded(
                f"{WAITING_MAX} stimuli wait for host {self.name}, which is busy at {self._stage.now_us} µs; "
                "offer it less, or make its disk faster"
            )
        self._waiting.append(stimulus)

    def _handle(self, stimulus: Stimulus) -> None:
        machine = self.machine
        assert machine is not None
        if self._stage.is_traced:
            self._say_handled(stimulus)
        try:
            effects = machine.handle(stimulus, self.now_ms)
        except Crash as crash:
            self.crash(power=crash.power)
            return
        took_us = self.disk.take_elapsed_us()
        if took_us:
            self._be_busy(took_us, effects)
        else:
            self._perform(effects)
            self._arm()

    def _be_busy(self, duration_us: int, pending: Sequence[Effect]) -> None:
        """Be busy from now on for so long, instead of before; then emit these effects."""
        calendar = self._stage.calendar
        if self._business is not None:
            calendar.cancel(self._business)
        self._pending = pending
        self._business = calendar.enter(calendar.now_us + duration_us, self._be_done)

    def _be_done(self) -> None:
        self._business = None
        self._perform(self._pending)
        while self._waiting and self._business is None:
            self._handle(self._waiting.popleft())
        if self._business is None:
            self._arm()

    def _unseen_us(self) -> int:
        """Clock jumps since boot, which a steady host ignores."""
        return self.clock.jumped_us - self._jumped_us_at_boot if self._is_steady else 0

    def _is(self, incarnation: int) -> bool:
        return self.machine is not None and incarnation == self.incarnation

    # ── the timer ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _arm(self) -> None:
        """Set the timer for the machine's wakeup time, or earlier."""
        if self.machine is None:
            return
        wakeup_ms = self.machine.wakeup_ms()
        if wakeup_ms is None:
            return
        now_us = self._stage.calendar.now_us
        missing_us = self.clock.until_us(wakeup_ms, now_us, without_us=self._unseen_us())
        at_us = now_us + min(missing_us, TIMER_US_MAX)
        if self._timer is not None:
            if self._timer_us <= at_us:
                return
            self._stage.calendar.cancel(self._timer)
        self._timer_us = at_us
        self._timer = self._stage.calendar.enter(at_us, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.machine is None or self._business is not None:  # it is armed again once it is not busy
            return
        wakeup_ms = self.machine.wakeup_ms()
        if wakeup_ms is not None and wakeup_ms <= self.now_ms:
            self._handle(TimerDue())
        else:
            self._arm()

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendPacket):
                self._network.send(self.name, effect.to, effect.payload)
            elif isinstance(effect, Commit):
                self._commit(effect)
            elif isinstance(effect, Background):
                self._run_beside(effect)
                if self.machine is None:  # it crashed with that
                    return
            elif isinstance(effect, Note):
                self._stage.say(f"{self.name} notes {shown(effect.value)}")
                self._note(self, effect.value)
            else:
                self._halt(effect)
                return

    def _halt(self, halt: Halt) -> None:
        self._stage.figures["halts"] += 1
        self._stage.say(f"{self.name} halts: {halt.reason}")
        self.crash(power=False)

    def _commit(self, commit: Commit) -> None:
        calendar, disk = self._stage.calendar, self.disk
        try:
            number = disk.begin_write(commit.name, commit.position, commit.data)
        except OSError as error:
            # Not at once: a machine that retries would never let time pass.
            failed = WriteFailed(commit.tag, str(error))
            calendar.enter(disk.commit_us(0), self._stimulate_if, self.incarnation, failed)
            return
        done_us = disk.commit_us(len(commit.data))
        calendar.enter(done_us, self._sync, self.incarnation, commit, number)
        strike = disk.struck()
        if strike is not None:
            crash_us = self._random.randint(calendar.now_us, done_us)
            calendar.enter(crash_us, self._crash_if, self.incarnation, strike.power, priority=FIRST)

    def _sync(self, incarnation: int, commit: Commit, number: int) -> None:
        if not self._is(incarnation):
            return
        try:
            self.disk.settle(commit.name, number)
        except OSError as error:
            self.stimulate(WriteFailed(commit.tag, str(error)))
        else:
            self.stimulate(Written(commit.tag))

    def _run_beside(self, background: Background) -> None:
        assert self.disk.take_elapsed_us() == 0, "what the machine itself did is accounted for"
        try:
            finished = BackgroundFinished(background.tag, background.action())
        except Crash as crash:
            self.crash(power=crash.power)
            return
        except (LavantError, OSError) as error:
            finished = BackgroundFinished(background.tag, None, error)
        done_us = self._stage.now_us + self.disk.take_elapsed_us()
        self._stage.calendar.enter(done_us, self._stimulate_if, self.incarnation, finished)

    def _stimulate_if(self, incarnation: int, stimulus: Stimulus) -> None:
        if self._is(incarnation):
            self.stimulate(stimulus)

    def _crash_if(self, incarnation: int, power: bool) -> None:
        if self._is(incarnation):
            self.crash(power=power)

    def _say_handled(self, stimulus: Stimulus) -> None:
        if isinstance(stimulus, Arrived):
            self._stage.say(f"{self.name} < {stimulus.source} {shown(stimulus.payload)}")
        else:
            self._stage.say(f"{self.name} {shown(stimulus)}")


Boot: TypeAlias = Callable[[Host], Machine]
