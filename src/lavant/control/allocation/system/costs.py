"""Costs of a topic's consumers: F_j(m) of the allocation paper, non-decreasing and convex.

Convex means that no consumer is cheaper than the one before it. Greedy allocation needs that; prices that fall with the
number are refused.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeAlias

import msgspec

from lavant.core.errors import InvalidValue


class Linear(msgspec.Struct, frozen=True, tag="Linear"):
    """The same price for each consumer."""

    price: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.price) and self.price > 0):
            raise InvalidValue(f"the price of a consumer must be positive, got {self.price}")

    def of(self, consumers: int) -> float:
        return self.price * consumers


class Power(msgspec.Struct, frozen=True, tag="Power"):
    """`price` · m to the power of `exponent`: each consumer costs more than the one before it."""

    price: float
    exponent: float

    def __post_init__(self) -> None:
        Linear(self.price)
        if not 1 <= self.exponent <= 10:
            raise InvalidValue(f"the exponent of a convex cost lies between 1 and 10, got {self.exponent}")

    def of(self, consumers: int) -> float:
        return float(self.price * consumers**self.exponent)


class Prices(msgspec.Struct, frozen=True, tag="Prices"):
    """A price for each consumer, one by one; further ones cost what the last does. Can express any convex function.

    >>> Prices((1.0, 1.0, 2.5)).of(5)
    9.5
    """

    each: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.each:
            raise InvalidValue("prices of single consumers: give at least one")
        for price in self.each:
            Linear(price)
        for number, (price, following) in enumerate(pairwise(self.each), start=1):
            if following < price:
                raise InvalidValue(
                    f"consumer {number + 1} costs {following}, less than the {price} of the one before it; "
                    "costs must be convex"
                )

    def of(self, consumers: int) -> float:
        beyond = max(0, consumers - len(self.each))
        return math.fsum((*self.each[:consumers], beyond * self.each[-1]))


Cost: TypeAlias = Linear | Power | Prices
