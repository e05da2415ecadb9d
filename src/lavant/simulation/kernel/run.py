"""Runs a scenario with a seed and reports the outcome."""

from __future__ import annotations

import shlex

import msgspec

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.distributions import MINUTE, S
from lavant.simulation.kernel.invariants import InvariantViolation
from lavant.simulation.kernel.scenario import Scenario, parse_options, settings_of
from lavant.simulation.kernel.trace import Trace
from lavant.simulation.kernel.world import World

MINUTES_MAX = 60 * 24 * 365


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one seed."""

    scenario: str
    seed: int
    minutes: float
    settings: list[str]
    """Options that differ from their defaults, as `name=value`."""
    events: int
    figures: dict[str, int]
    """Counts: packets, losses, faults, and what the scenario counts."""
    digest: str | None
    """Of the whole trace, if there was one."""
    violation: InvariantViolation | None

    @property
    def command(self) -> str:
        """The command that repeats this run with the same code."""
        minutes = str(self.minutes).removesuffix(".0")
        words = ["lavant", "sim", "replay", self.scenario, "--seed", str(self.seed), "--minutes", minutes]
        for setting in self.settings:
            words += ["--set", setting]
        return shlex.join(words)

    def report(self) -> str:
        """The violation as text, with the command that repeats it."""
        violation = self.violation
        if violation is None:
            return f"seed {self.seed} holds: {self.minutes:g} min of virtual time, {self.events:,} events"
        return (
            f"seed {self.seed} violates '{violation.invariant}' at {violation.time_us / 1e6:.6f} s of virtual time, "
            f"after {self.events:,} events:\n  {violation.what}\nrepeat it with\n  {self.command}"
        )


def require_minutes(minutes: float) -> None:
    if not 0 < minutes <= MINUTES_MAX:
        raise InvalidValue(f"a run must last more than 0 and at most {MINUTES_MAX} virtual minutes, got {minutes:g}")


def run(
    scenario: Scenario,
    seed: int,
    *,
    minutes: float | None = None,
    options: msgspec.Struct | None = None,
    trace: Trace | None = None,
) -> RunOutcome:
    """Build the world and run it; with a trace it takes about twice as long."""
    minutes = scenario.minutes if minutes is None else minutes
    require_minutes(minutes)
    options = parse_options(scenario, ()) if options is None else options
    world = World(seed, work_us=max(1, round(minutes * MINUTE)), calm_us=round(scenario.calm_s * S), trace=trace)
    scenario.build(world, options)
    violation = world.run()
    return RunOutcome(
        scenario=scenario.name,
        seed=seed,
        minutes=minutes,
        settings=settings_of(scenario, options),
        events=world.stage.calendar.events,
        figures=dict(sorted(world.stage.figures.items())),
        digest=None if trace is None else trace.digest(),
        violation=violation,
    )
