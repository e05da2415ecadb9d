"""Converts filters to a range for each attribute, as far as encrypted filters can express them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lavant.broker.filters import Filter
from lavant.broker.filters.algebra.constraints import Constraint, Numbers
from lavant.client.encryption.schema import Schema
from lavant.core.errors import InvalidValue

Doubles = NDArray[np.float64]


class Grid:
    """The grids of all attributes of a schema; columns of an array are its attributes."""

    def __init__(self, schema: Schema) -> None:
        ticks = np.array([attribute.ticks() for attribute in schema.attributes], np.float64)
        self._first, self._step, self._denominator, self.steps = ticks.T
        self._schema = schema

    def values(self, points: Doubles) -> Doubles:
        """The values of grid points, by their numbers."""
        return np.asarray((self._first + points * self._step) / self._denominator)

    def points(self, values: Doubles) -> Doubles:
        """The numbers of the nearest grid points; raises for values out of range."""
        attributes = self._schema.attributes
        inside = (values >= [a.min for a in attributes]) & (values <= [a.max for a in attributes])  # NaN is not
        if not inside.all():
            row, column = (int(i) for i in np.argwhere(~inside)[0])
            attribute = attributes[column]
            raise InvalidValue(
                f"{attribute.name} of publication {row} is {values[row, column]}, outside of the schema's "
                f"[{attribute.min}, {attribute.max}]; clip it, or make a schema and key with a wider range"
            )
        return np.asarray(np.clip(self._nearest(values), 0, self.steps))

    def first_not_below(self, bounds: Doubles) -> Doubles:
        """For each bound the first grid point that is not below it: 0 … steps, or steps + 1 if all are below."""
        if np.isnan(bounds).any():
            row, column = (int(i) for i in np.argwhere(np.isnan(bounds))[0])
            raise InvalidValue(
                f"the bound of {self._schema.names[column]} in filter {row} is nan; use -inf or inf where there is none"
            )
        lowest, highest = self.values(np.zeros(len(self.steps))), self.values(self.steps)
        nearest = self._nearest(np.clip(bounds, lowest, highest))
        inner = nearest + (self.values(nearest) < bounds)
        return np.asarray(np.where(bounds > highest, self.steps + 1, inner))

    def place(self, points: Doubles) -> Doubles:
        """Where grid points lie on [-1, 1]."""
        return np.asarray((2 * points - self.steps) / self.steps)

    def _nearest(self, values: Doubles) -> Doubles:
        return np.asarray(np.rint((values * self._denominator - self._first) / self._step))


EXPRESSIBLE = "an encrypted filter is one conjunction of one range for each attribute, as in price >= 10 and price < 20"


def ranges_of(schema: Schema, filters: Sequence[Filter]) -> tuple[Doubles, Doubles]:
    """Half-open ranges low ≤ x < high, filters × attributes; infinite where a filter sets no bound."""
    low = np.full((len(filters), len(schema.names)), -math.inf)
    high = np.full((len(filters), len(schema.names)), math.inf)
    column = {name: i for i, name in enumerate(schema.names)}
    for row, wanted in enumerate(filters):
        for name, constraint in _constraints(schema, wanted):
            start, end = _interval(wanted, name, constraint)
            low[row, column[name]] = -math.inf if start is None else start
            high[row, column[name]] = math.inf if end is None else end
    return low, high


def _constraints(schema: Schema, wanted: Filter) -> tuple[tuple[str, Constraint], ...]:
    if not wanted.conjunctions:
        raise InvalidValue("a filter that matches nothing cannot be encrypted; leave it out")
    if len(wanted.conjunctions) > 1:
        raise InvalidValue(
            f"filter {_shown(wanted)} has {len(wanted.conjunctions)} alternatives; {EXPRESSIBLE}: "
            "make each alternative a subscription of its own"
        )
    constraints = wanted.conjunctions[0].constraints
    unknown = schema.unknown(name for name, _ in constraints)
    if unknown:
        raise InvalidValue(
            f"filter {_shown(wanted)} names attribute {unknown[0]!r}, which the schema does not encrypt; "
            f"it has {', '.join(schema.names)}"
        )
    return constraints


def _interval(wanted: Filter, name: str, constraint: Constraint) -> tuple[float | None, float | None]:
    if not isinstance(constraint, Numbers):
        raise InvalidValue(f"filter {_shown(wanted)} does not compare {name!r} with numbers; {EXPRESSIBLE}")
    if len(constraint.intervals) != 1:
        raise InvalidValue(
            f"filter {_shown(wanted)} allows {len(constraint.intervals)} ranges of {name!r}; {EXPRESSIBLE}: "
            "make each range a subscription of its own"
        )
    return constraint.intervals[0]


def _shown(wanted: Filter) -> str:
    text = str(wanted)
    return text if len(text) <= 120 else text[:119] + "…"
