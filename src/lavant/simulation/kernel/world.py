"""A world of virtual time: hosts and links of a scenario, faults and work from a seed, invariants that must hold.

    0 ──────────── work and faults ──────────── calm_us ──── no new work, no faults ──── end_us
                                                │                                        │
                                                everything is healed                     final checks

The calm lets liveness be checked: what must happen eventually has happened at its end.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from random import Random
from typing import Any, NoReturn

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.calendar import FIRST, NORMAL, Entry
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.disk.disk import DiskConfig, SimulatedDisk
from lavant.simulation.kernel.distributions import Distribution, LogUniform, S
from lavant.simulation.kernel.host import Boot, Host
from lavant.simulation.kernel.invariants import Check, Invariants, InvariantViolation, Violated
from lavant.simulation.kernel.network import LinkConfig, SimulatedNetwork
from lavant.simulation.kernel.trace import Trace


class Arrivals:
    """Calls `act(random)` repeatedly, with gaps from a distribution, up to `until_us`.

    The gaps and the action have random streams of their own, so that an action that draws more does not move the
    arrivals.
    """

    def __init__(
        self,
        stage: SimulationContext,
        name: str,
        gap_us: Distribution,
        act: Callable[[Random], object],
        *,
        until_us: int,
    ) -> None:
        self._calendar = stage.calendar
        self._gaps = stage.randomness.stream(f"arrivals/{name}/gaps")
        self._work = stage.randomness.stream(f"arrivals/{name}/work")
        self._gap_us = gap_us
        self._act = act
        self._until_us = until_us
        self._next()

    def _next(self) -> None:
        # Endless gaps of 0 would stop time, so the least is 1.
        time_us = self._calendar.now_us + max(1, self._gap_us.draw_us(self._gaps))
        if time_us < self._until_us:
            self._calendar.enter(time_us, self._arrive)

    def _arrive(self) -> None:
        self._act(self._work)
        self._next()


EVENTS_AT_ONCE_MAX = 100_000
"""So many events without progress of time are a loop."""
CALM_US = 30 * S
RESTART_US = LogUniform(10_000, 10_000_000)
NOTHING_FAILS = "no machine fails"
TIME_GOES_ON = "time goes on"
_ADDRESS = re.compile(r" at 0x[0-9a-f]*")
"""Differs from run to run, so it must not be in a trace."""


def _ignore(host: Host, value: Any) -> None:
    pass


class World:
    """What a scenario builds. Everything in it is a function of the seed, the times and the scenario's options."""

    def __init__(self, seed: int, *, work_us: int, calm_us: int = CALM_US, trace: Trace | None = None) -> None:
        if work_us <= 0 or calm_us < 0:
            raise InvalidValue(
                f"a world needs time to work and none below 0 to calm down, got {work_us} and {calm_us} µs"
            )
        self.seed = seed
        self.calm_us = work_us
        """When work and faults end."""
        self.end_us = work_us + calm_us
        self.stage = SimulationContext(seed, trace)
        self.network = SimulatedNetwork(self.stage)
        self.invariants = Invariants(self.stage)
        self.hosts: dict[str, Host] = {}
        self._at_calm: list[Callable[[], object]] = [self._heal]

    # ── building ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def host(
        self,
        name: str,
        boot: Boot,
        *,
        disk: DiskConfig | None = None,
        restart_us: Distribution = RESTART_US,
        is_steady: bool = True,
        note: Callable[[Host, Any], None] = _ignore,
    ) -> Host:
        """A host that runs what `boot` makes, from the world's start on, and again after each crash.

        `note` gets the machine's notes. A steady host reads its clock when it boots and counts on from there, so that
        setting the clock shows only after a restart; any other shows each jump to its machine at once.
        """
        if name in self.hosts:
            raise InvalidValue(f"there is a host {name!r} already; give each a name of its own")
        storage = SimulatedDisk(self.stage, name, DiskConfig() if disk is None else disk)
        host = Host(
            self.stage, self.network, name, boot, disk=storage, restart_us=restart_us, is_steady=is_steady, note=note
        )
        self.hosts[name] = host
        self.after(0, host.start)
        return host

    def links(self, config: LinkConfig) -> None:
        """Configure links that `network.configure` does not mention."""
        self.network.config = config

    def arrivals(self, name: str, gap_us: Distribution, act: Callable[[Random], object]) -> None:
        """Work: call `act(random)` with random gaps until the calm; it may `stimulate` a host, or do anything else."""
        Arrivals(self.stage, name, gap_us, act, until_us=self.calm_us)

    def invariant(self, name: str, check: Check, *, every_us: int | None = None) -> None:
        """`check` returns what is wrong, or None; it is called after each event or at intervals, and at the end."""
        self.invariants.add(name, check, every_us=every_us)

    def at_end(self, name: str, check: Check) -> None:
        """An invariant checked at the end."""
        self.invariants.add_at_end(name, check)

    def at_calm(self, action: Callable[[], object]) -> None:
        self._at_calm.append(action)

    def random(self, name: str) -> Random:
        """A random stream that depends on the seed and this name only."""
        return self.stage.randomness.stream(name)

    def at(self, time_us: int, action: Callable[..., object], *arguments: object, priority: int = NORMAL) -> Entry:
        return self.stage.calendar.enter(time_us, action, *arguments, priority=priority)

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object, priority: int = NORMAL) -> Entry:
        return self.stage.calendar.enter(self.now_us + delay_us, action, *arguments, priority=priority)

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now_us(self) -> int:
        return self.stage.calendar.now_us

    def count(self, figure: str, by: int = 1) -> None:
        """Add to a figure of the outcome."""
        self.stage.figures[figure] += by

    def violated(self, name: str, what: str) -> NoReturn:
        """End the run here, where something impossible was seen."""
        self.invariants.violated(name, what)

    def run(self) -> InvariantViolation | None:
        """Run to the end, or to the first violation."""
        try:
            self.at(self.calm_us, self._become_calm, priority=FIRST)
            self._pass()
            self.stage.calendar.now_us = self.end_us
            self.invariants.check_at_end()
        except Violated as stop:
            return stop.violation
        except Exception as error:
            return self._failed(error)
        return None

    def _pass(self) -> None:
        calendar = self.stage.calendar
        after_each = self.invariants.after_each
        while True:
            before_us = calendar.now_us
            events = calendar.run(until_us=self.end_us, events_max=EVENTS_AT_ONCE_MAX, after_each=after_each)
            if events < EVENTS_AT_ONCE_MAX:
                return
            if calendar.now_us == before_us:
                self.violated(TIME_GOES_ON, f"{events} events happened at {before_us} µs, and there are more")

    def _become_calm(self) -> None:
        self.stage.say("world calms down")
        for action in self._at_calm:
            action()

    def _heal(self) -> None:
        for host in self.hosts.values():
            host.disk.heal()
            host.resume()
            host.clock.correct(now_us=self.now_us)
            host.start()

    def _failed(self, error: Exception) -> InvariantViolation:
        """An unexpected error is a violation too."""
        what = _ADDRESS.sub(" at an address", f"{type(error).__name__}: {error}")
        try:
            self.invariants.violated(NOTHING_FAILS, what, "".join(traceback.format_exception(error)))
        except Violated as stop:
            return stop.violation
