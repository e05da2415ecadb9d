"""Loads: Poisson arrivals with a rate that changes in steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import msgspec

from lavant.core.errors import InvalidValue


class LoadStep(msgspec.Struct, frozen=True):
    """So many arrivals a second for so long."""

    rate_per_s: float
    duration_s: float

    def __post_init__(self) -> None:
        for name in ("rate_per_s", "duration_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidValue(f"{name} of a load must be positive, got {value}")


PAPER_LOADS_PER_S = (1.75, 17.5, 35.0, 55.0)

TABLE_II = (LoadStep(1.75, 100), LoadStep(55, 200), LoadStep(17.5, 200), LoadStep(35, 250), LoadStep(17.5, 250))
"""The step load of "Auto-tuned Publisher in a Pub/Sub System", Table II."""


def lookup_trace(
    random: Random, *, hours: float = 6.0, mean_per_s: float = 0.7, speedup: float = 1.0
) -> tuple[LoadStep, ...]:
    """A load like that of a lookup service: slow waves, and minutes that differ by a quarter; `speedup` times as fast.

    >>> fast = lookup_trace(Random(1), hours=1.0, speedup=50.0)
    >>> len(fast), fast[0].duration_s, round(sum(step.rate_per_s * step.duration_s for step in fast) / 3600, 1)
    (60, 1.2, 0.9)
    """
    steps = []
    for minute in range(round(60 * hours)):
        wave = 1.0 + 0.5 * math.sin(minute / 60 * math.tau / 2)
        rate_per_s = mean_per_s * wave * random.lognormvariate(0.0, 0.25)
        steps.append(LoadStep(speedup * rate_per_s, 60.0 / speedup))
    return tuple(steps)


def arrivals_us(steps: tuple[LoadStep, ...], random: Random) -> Iterator[int]:
    """The times of arrivals, in microseconds from the start of the first step."""
    start_s = 0.0
    for step in steps:
        time_s = start_s + random.expovariate(step.rate_per_s)
        start_s += step.duration_s
        while time_s < start_s:  # later arrivals are drawn again with the next rate: a Poisson process is memoryless
            yield round(time_s * 1e6)
            time_s += random.expovariate(step.rate_per_s)
