"""The encrypted attributes, and the grid on which the values of each lie.

A grid makes matching exact: publications lie on grid points, and bounds half-way between two of them, so rounding
cannot move a value across a bound (see `STEPS_MAX`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import msgspec

from lavant.broker.matching.encrypted.values import ATTRIBUTES_MAX
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.attributes import check_name, check_value

STEPS_MAX = 10**9
"""Grid steps between min and max. With N steps on [-1, 1] a value is at least 1/N away from a bound. The server's
tolerance amounts there to TOLERANCE · κ · ‖(x, 1)‖ · ‖(e, b)‖ ≤ 10⁻¹² · 16 · √17 · √2 < 10⁻¹⁰ for the largest schema
and the worst key (of condition κ), and rounding to no more; so 10⁹ steps leave a factor of five."""

INTEGER_MAX = 2**50
"""The largest numerator and denominator of the grid: products and quotients of such integers are exact enough."""


class Ticks(NamedTuple):
    """The grid in integers: point k is (first + k · step) / denominator, and `steps` is the last k."""

    first: int
    step: int
    denominator: int
    steps: int


class NumericAttribute(msgspec.Struct, frozen=True):
    """Values min, min + resolution, … max. Numbers are decimal: 0.01 is a hundredth, not the nearest double.

    >>> NumericAttribute("price", min=0, max=1000, resolution=0.01).ticks()
    Ticks(first=0, step=1, denominator=100, steps=100000)
    """

    name: str
    min: float
    max: float
    resolution: float

    def __post_init__(self) -> None:
        check_name(self.name)
        for field in ("min", "max", "resolution"):
            value = check_value(f"{self.name}.{field}", getattr(self, field))
            if isinstance(value, bool | str):
                raise InvalidValue(f"{field} of encrypted attribute {self.name!r} must be a number, got {value!r}")
        if not self.resolution > 0:
            raise InvalidValue(
                f"resolution of encrypted attribute {self.name!r} must be positive, got {self.resolution}"
            )
        if not self.min < self.max:
            raise InvalidValue(f"encrypted attribute {self.name!r} needs min < max, got {self.min} and {self.max}")
        self.ticks()

    def ticks(self) -> Ticks:
        """The grid in integers; raises if it is too fine."""
        low, high, resolution = (Fraction(str(value)) for value in (self.min, self.max, self.resolution))
        steps = (high - low) / resolution
        if steps.denominator != 1:
            raise InvalidValue(
                f"encrypted attribute {self.name!r}: max - min = {float(high - low):g} is not a multiple of the "
                f"resolution {self.resolution:g}; set max to {float(low + int(steps + 1) * resolution):g}"
            )
        if steps > STEPS_MAX:
            raise LimitExceeded(
                f"encrypted attribute {self.name!r} has {int(steps)} grid steps, at most {STEPS_MAX} can be told apart "
                f"for sure; use a resolution of at least {float((high - low) / STEPS_MAX):g} or a smaller range"
            )
        denominator = math.lcm(low.denominator, resolution.denominator)
        ticks = Ticks(int(low * denominator), int(resolution * denominator), denominator, int(steps))
        if max(abs(ticks.first), abs(int(high * denominator)), denominator) > INTEGER_MAX:
            raise LimitExceeded(
                f"encrypted attribute {self.name!r}: min {self.min} and max {self.max} are too large for the "
                f"resolution {self.resolution}; keep their ratio below 2^50"
            )
        return ticks


class Schema(msgspec.Struct, frozen=True):
    """The encrypted attributes, in the order of the vectors' dimensions.

    >>> Schema.of(NumericAttribute("price", 0, 1000, 0.01), NumericAttribute("volume", 0, 10_000_000, 1)).names
    ('price', 'volume')
    """

    attributes: tuple[NumericAttribute, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.attributes) <= ATTRIBUTES_MAX:
            raise LimitExceeded(
                f"a schema has between 1 and {ATTRIBUTES_MAX} encrypted attributes, got {len(self.attributes)}"
            )
        twice = sorted(name for name in set(self.names) if self.names.count(name) > 1)
        if twice:
            raise InvalidValue(f"encrypted attribute {twice[0]!r} occurs twice in the schema")

    @classmethod
    def of(cls, *attributes: NumericAttribute) -> Schema:
        return cls(attributes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Returns the names that are not in the schema."""
        return sorted(set(names) - set(self.names))
