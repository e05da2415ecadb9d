"""Simulation of a net: runs, monitors, and replications with confidence intervals. Chance comes in as an argument."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.petri.compiled.simulator_source import COUNTED, simulator_source, storage_of
from lavant.models.petri.hierarchy import FlatNet
from lavant.models.petri.language.colours import Token
from lavant.models.petri.language.inscriptions import token_count
from lavant.models.petri.language.python_source import draw
from lavant.models.petri.monitors import DataCollection, Monitor, Occurrences, Size, check_monitors

DRAWS = 4_096
"""Random numbers drawn at once."""

STEPS_AT_ONCE = 65_536
"""Steps between two summaries of what was observed."""

VALUES_MAX = 5_000_000
"""Observed values of a monitor that are kept for quantiles."""

INSTANT_STEPS_MAX = 2_000_000
"""Steps without time passing, unless a number of steps is asked for. A net that makes more would run for ever."""

SETS_MAX = 100_000
"""Sets of transitions for which the order of trials is remembered."""

_ONE = (0,)


class Statistics(msgspec.Struct, frozen=True):
    """What a monitor measured: of observations their mean, of a size its mean over time."""

    count: int
    mean: float
    least: float
    greatest: float


class Simulation:
    """One run of a net.

    >>> from lavant.models.petri.net import Net
    >>> from lavant.models.petri.language.colours import Int
    >>> net = Net("a counter")
    >>> INT = net.colour(Int("INT"))
    >>> net.variables(n=INT)
    >>> page = net.page("Top")
    >>> _ = page.place("Counter", INT, [0])
    >>> _ = page.transition("Count", takes={"Counter": "n"}, puts={"Counter": "n + 1"}, guard="n < 10")
    >>> run = Simulation(net.flatten(), np.random.default_rng(1))
    >>> run.run(), run.ended, run.marking()["Top'Counter"]
    (10, 'dead', [Token(value=10, time=None)])
    """

    def __init__(self, flat: FlatNet, rng: np.random.Generator, monitors: Sequence[Monitor] = ()) -> None:
        self.flat, self.monitors = flat, tuple(monitors)
        check_monitors(self.monitors, flat)
        self._values: list[list[float]] = [[] for _ in self.monitors]
        self._kept: list[list[Any]] = [[] for _ in self.monitors]
        self._sums: list[_Sum] = [_Sum() for _ in self.monitors]
        self.steps, self.ended, self._since = 0, "", 0.0
        made = _compiled(flat, self.monitors)["make"](
            _stream(rng.random),
            _stream(rng.standard_exponential),
            lambda place, value: flat.places[place].colour.token(value),
            [values.append for values in self._values],
            _Order(flat).choose,
        )
        self._run, self._marking, self._sizes, self._counts, self._reset_sizes = made
        self._counted_from = [0] * len(flat.transitions)

    @property
    def now(self) -> float:
        time: float = self._marking()[0]
        return time

    def run(self, *, until: float = math.inf, steps: int | None = None) -> int:
        """Run until a time, for a number of steps, to a breakpoint, or until nothing can occur.

        `ended` says which: "time", "steps", "breakpoint" or "dead". Returns the steps made.
        """
        if not isinstance(until, int | float) or not until >= self.now:
            raise InvalidValue(f"the clock is at {self.now:g}; until is a time from there on, got {until}")
        if steps is not None and (not isinstance(steps, int) or steps < 0):
            raise InvalidValue(f"steps is a whole number from 0 on, got {steps}")
        if until == math.inf and steps is None and self._never_ends():
            raise InvalidValue("the net may run for ever; give a time or a number of steps")
        done = since = 0
        at = self.now
        while steps is None or done < steps:
            wanted = STEPS_AT_ONCE if steps is None else min(STEPS_AT_ONCE, steps - done)
            made, why, last = self._run(wanted, until)
            done += made
            self._summarise()
            if isinstance(why, Exception):
                what = str(why) or "a list is empty"
                name = self.flat.transitions[last].name
                raise InvalidValue(f"transition {name}, at time {self.now:g}, step {self.steps + done + 1:,}: {what}")
            self.ended = why
            if why != "steps":
                break
            since, at = (since, at) if at == self.now else (done, self.now)
            if steps is None and done - since >= INSTANT_STEPS_MAX:
                name = self.flat.transitions[last].name
                raise InvalidValue(
                    f"the clock stands still at {at:g}: {done - since:,} steps without time passing, the last of them "
                    f"{name}; give a number of steps, or a delay to one of its arcs"
                )
        self.steps += done
        return done

    def _never_ends(self) -> bool:
        return any(place.colour.timed for place in self.flat.places)

    def reset_monitors(self) -> None:
        """Forget what was observed so far, after a warm-up say."""
        self._kept = [[] for _ in self.monitors]
        self._sums = [_Sum() for _ in self.monitors]
        self._counted_from = self._counts()
        self._since = self._reset_sizes()

    def _summarise(self) -> None:
        for values, kept, total in zip(self._values, self._kept, self._sums, strict=True):
            if values:
                column = np.asarray(values, dtype=np.float64)
                values.clear()
                if total.count < VALUES_MAX:
                    kept.append(column)
                total.add(column)

    def counts(self) -> dict[str, int]:
        """How often each transition occurred."""
        return {each.name: count for each, count in zip(self.flat.transitions, self._counts(), strict=True)}

    def statistics(self) -> dict[str, Statistics]:
        """What each monitor measured, by name."""
        sizes, counts, found = self._sizes(), self._counts(), {}
        length = self.now - self._since
        for at, (monitor, total) in enumerate(zip(self.monitors, self._sums, strict=True)):
            if isinstance(monitor, DataCollection):
                found[monitor.name] = total.statistics()
            elif isinstance(monitor, Size):
                area, greatest = sizes[at]
                mean = area / length if length > 0 else math.nan
                found[monitor.name] = Statistics(1, mean, math.nan, greatest)
            elif isinstance(monitor, Occurrences):
                bit = self.flat.transition(monitor.transition)
                count = counts[bit] - self._counted_from[bit]
                found[monitor.name] = Statistics(count, count / length if length > 0 else math.nan, math.nan, math.nan)
        return found

    def values(self, monitor: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The observations of a monitor; the first five million of them."""
        for each, kept in zip(self.monitors, self._kept, strict=True):
            if each.name == monitor:
                return np.concatenate(kept) if kept else np.empty(0)
        raise InvalidValue(f"no monitor {monitor!r}; there are {', '.join(each.name for each in self.monitors)}")

    def marking(self) -> dict[str, list[Token] | int]:
        """The tokens of each place, by the place's name; of a place that nothing takes from, their number."""
        _, tokens, waiting = self._marking()
        found: dict[str, list[Token] | int] = {}
        for place, kind, held in zip(self.flat.places, storage_of(self.flat), tokens, strict=True):
            found[place.name] = held if kind == COUNTED else [Token(value) for value in held]
        for time, _, at, value in sorted(waiting):
            held = found[self.flat.places[at].name]
            assert isinstance(held, list)
            held.append(Token(value, time))
        return found


class _Order:
    """Which transitions to try first, of those that may be enabled: one of the highest priority, by chance."""

    def __init__(self, flat: FlatNet) -> None:
        self._priorities = [each.transition.priority for each in flat.transitions]

    def choose(self, bits: int, table: dict[int, Any]) -> Any:
        maybe = [bit for bit in range(len(self._priorities)) if bits >> bit & 1]
        least = min(self._priorities[bit] for bit in maybe)
        first = tuple(bit for bit in maybe if self._priorities[bit] == least)
        if len(table) >= SETS_MAX:
            table.clear()
        table[bits] = first if len(first) > 1 else first[0]
        return table[bits]


class _Sum:
    def __init__(self) -> None:
        self.count, self.total, self.least, self.greatest = 0, 0.0, math.inf, -math.inf

    def add(self, column: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        self.count += len(column)
        self.total += float(column.sum())
        self.least = min(self.least, float(column.min()))
        self.greatest = max(self.greatest, float(column.max()))

    def statistics(self) -> Statistics:
        if not self.count:
            return Statistics(0, math.nan, math.nan, math.nan)
        return Statistics(self.count, self.total / self.count, self.least, self.greatest)


def _compiled(flat: FlatNet, monitors: tuple[Monitor, ...]) -> dict[str, Any]:
    source = simulator_source(flat, monitors)
    names: dict[str, Any] = {"_push": heappush, "_pop": heappop, "_order": _order, "_count": token_count, "_draw": draw}
    exec(
        compile(source, f"<simulator of {flat.name}>", "exec"), names
    )  # written by simulator_source, from checked text
    return names


def _order(length: int, uniform: Callable[[], float]) -> Any:
    """Indexes from a random one on."""
    if length == 1:
        return _ONE
    start = int(uniform() * length)
    return chain(range(start, length), range(start))


def _stream(draw: Callable[[int], Any]) -> Callable[[], float]:
    def numbers() -> Iterator[float]:
        while True:
            yield from draw(DRAWS).tolist()

    return numbers().__next__
