"""Filters of the language as ranges by attribute, as far as encrypted filters can express them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lavant.broker.filters import Filter
from lavant.broker.filters.constraints import Constraint, Numbers
from lavant.client.encryption.schema import Schema
from lavant.core.errors import InvalidValue

EXPRESSIBLE = "an encrypted filter is one conjunction of one range for each attribute, as in price >= 10 and price < 20"

Doubles = NDArray[np.float64]


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
