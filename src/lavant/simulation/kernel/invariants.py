"""Invariants: checks that a scenario registers, and the violation that ends a run.

A check returns None while it holds, and otherwise says what is wrong, with the values that show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

import msgspec

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.calendar import LAST
from lavant.simulation.kernel.context import SimulationContext

Check: TypeAlias = Callable[[], str | None]


class InvariantViolation(msgspec.Struct, frozen=True, kw_only=True):
    """What was violated, when, and how it shows."""

    invariant: str
    what: str
    time_us: int
    traceback: str = ""
    """Origin of an unexpected error."""


class Violated(Exception):
    """Ends the run; only the world catches it."""

    def __init__(self, violation: InvariantViolation) -> None:
        super().__init__(f"{violation.invariant}: {violation.what}")
        self.violation = violation


class Invariants:
    """Checks after each event, at intervals, and at the end."""

    def __init__(self, stage: SimulationContext) -> None:
        self._stage = stage
        self._always: list[tuple[str, Check]] = []
        self._at_end: list[tuple[str, Check]] = []
        self._names: set[str] = set()

    @property
    def after_each(self) -> Callable[[], None] | None:
        """The function to call after each event, if any."""
        return self._check_always if self._always else None

    def add(self, name: str, check: Check, *, every_us: int | None) -> None:
        """Check after each event or at intervals, and at the end."""
        self._require_new(name)
        if every_us is None:
            self._always.append((name, check))
        elif every_us <= 0:
            raise InvalidValue(f"invariant {name!r} must be checked every 1 µs or more, got {every_us}")
        else:
            self._enter(name, check, every_us)
        self._at_end.append((name, check))

    def add_at_end(self, name: str, check: Check) -> None:
        self._require_new(name)
        self._at_end.append((name, check))

    def check_at_end(self) -> None:
        for name, check in self._at_end:
            self._check(name, check)

    def violated(self, name: str, what: str, traceback: str = "") -> NoReturn:
        self._stage.say(f"VIOLATED {name}: {what}")
        raise Violated(InvariantViolation(invariant=name, what=what, time_us=self._stage.now_us, traceback=traceback))

    def _check_always(self) -> None:
        for name, check in self._always:
            self._check(name, check)

    def _check(self, name: str, check: Check) -> None:
        what = check()
        if what is not None:
            self.violated(name, what)

    def _enter(self, name: str, check: Check, every_us: int) -> None:
        def repeat() -> None:
            self._check(name, check)
            calendar.enter(calendar.now_us + every_us, repeat, priority=LAST)

        calendar = self._stage.calendar
        calendar.enter(calendar.now_us + every_us, repeat, priority=LAST)

    def _require_new(self, name: str) -> None:
        if name in self._names:
            raise InvalidValue(f"there is an invariant {name!r} already; give each a name of its own")
        self._names.add(name)
