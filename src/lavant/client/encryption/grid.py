"""From values to places: grid points for publications, half-way places for bounds, both on [-1, 1] by attribute.

Grid point k of an attribute is the double nearest to (first + k·step) / denominator: a quotient of two integers that
doubles hold exactly, so it is the very double that the literal 10.07 stands for, and comparisons with a filter's
bounds are those of the plaintext. A bound b of `x ≥ b` or `x < b` becomes the place half a step below the first grid
point that is not below b:

    grid point      k - 1         k        k + 1
    place         ────┼─────┊─────┼───────────┼────         x ≥ b and x < b part at ┊,
                            ┊   b                           wherever b is above k - 1 and not above k
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
        """The doubles that grid points (by number) stand for."""
        return np.asarray((self._first + points * self._step) / self._denominator)

    def points(self, values: Doubles) -> Doubles:
        """The numbers of the nearest grid points; an error for values out of range."""
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
