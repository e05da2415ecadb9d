"""Random durations in whole microseconds for links, disks, faults and workloads."""

from __future__ import annotations

import math
from random import Random
from typing import TypeAlias

import msgspec

from lavant.core.errors import InvalidValue

MS, S, MINUTE = 1_000, 1_000_000, 60_000_000
"""In microseconds."""


class Constant(msgspec.Struct, frozen=True):
    value_us: int

    def __post_init__(self) -> None:
        _require_not_negative("value_us", self.value_us)

    def draw_us(self, random: Random) -> int:
        return self.value_us


class Uniform(msgspec.Struct, frozen=True):
    """Anything from `low_us` to `high_us`, both included."""

    low_us: int
    high_us: int

    def __post_init__(self) -> None:
        _require_not_negative("low_us", self.low_us)
        if self.low_us > self.high_us:
            raise InvalidValue(f"low_us must not exceed high_us, got {self.low_us} and {self.high_us}")

    def draw_us(self, random: Random) -> int:
        return self.low_us + int(random.random() * (self.high_us - self.low_us + 1))


class Exponential(msgspec.Struct, frozen=True):
    """`least_us` plus an exponential time with a mean of `mean_us`."""

    mean_us: int
    least_us: int = 0

    def __post_init__(self) -> None:
        _require_not_negative("mean_us", self.mean_us)
        _require_not_negative("least_us", self.least_us)

    def draw_us(self, random: Random) -> int:
        return self.least_us + int(-math.log(1.0 - random.random()) * self.mean_us)


class LogUniform(msgspec.Struct, frozen=True):
    """From `low_us` to `high_us`, equally likely in each order of magnitude: for times of unknown scale."""

    low_us: int
    high_us: int

    def __post_init__(self) -> None:
        if not 0 < self.low_us <= self.high_us:
            raise InvalidValue(f"0 < low_us ≤ high_us is needed, got {self.low_us} and {self.high_us}")

    def draw_us(self, random: Random) -> int:
        return int(self.low_us * (self.high_us / self.low_us) ** random.random())


class Mixture(msgspec.Struct, frozen=True):
    """`usual`, or with probability `share` `rare`: a disk or link with spikes."""

    usual: Distribution
    rare: Distribution
    share: float

    def __post_init__(self) -> None:
        require_probability("share", self.share)

    def draw_us(self, random: Random) -> int:
        return (self.rare if random.random() < self.share else self.usual).draw_us(random)


Distribution: TypeAlias = Constant | Uniform | Exponential | LogUniform | Mixture


def require_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidValue(f"{name} is a probability and must lie in 0 to 1, got {value}")


def _require_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise InvalidValue(f"{name} must be 0 or more, got {value}")
