"""Independent replications of a simulation, and confidence intervals from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.petri.hierarchy import FlatNet
from lavant.models.petri.monitors import Breakpoint, DataCollection, Monitor
from lavant.models.petri.simulation import Simulation

REPLICATIONS_MAX = 100_000
_Z = 1.959963984540054
_FEW = {1: 12.706205, 2: 4.302653, 3: 3.182446}


class ReplicatedMean(msgspec.Struct, frozen=True):
    """The mean over all replications that observed something, and half the width of its 95 % confidence interval."""

    mean: float
    """Not a number if none did."""
    half_width: float
    """Not a number if fewer than two did."""
    values: list[float]
    """One for each of them."""
    p95: float | None = None
    """The mean of the 95th percentiles, for observations."""


class Replications(msgspec.Struct, frozen=True):
    estimates: dict[str, ReplicatedMean]
    steps: int


def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's distribution, by its expansion (Abramowitz and Stegun, 26.7.5).

    >>> round(student_t(2), 3), round(student_t(9), 3), round(student_t(29), 3)
    (4.303, 2.262, 2.045)
    """
    if degrees in _FEW:
        return _FEW[degrees]
    z, v = _Z, float(degrees)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + math.fsum(term / v ** (power + 1) for power, term in enumerate(terms))


def estimate(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % confidence interval.

    >>> estimate([1.0, 3.0]), estimate([2.0]), estimate([])
    ((2.0, 12.706205), (2.0, nan), (nan, nan))
    """
    count = len(values)
    mean = math.fsum(values) / count if count else math.nan
    if count < 2:
        return mean, math.nan
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, student_t(count - 1) * math.sqrt(variance / count)


def replicate(
    flat: FlatNet,
    monitors: Sequence[Monitor],
    rng: np.random.Generator,
    *,
    replications: int,
    until: float,
    warm_up: float = 0.0,
) -> Replications:
    """Run a net several times, each with a generator of its own, and forget what happened before `warm_up`."""
    if not 2 <= replications <= REPLICATIONS_MAX:
        raise InvalidValue(f"replications must be between 2 and {REPLICATIONS_MAX:,}, got {replications}")
    if not 0 <= warm_up < until:
        raise InvalidValue(f"the warm-up of {warm_up:g} s must end before the run does, at {until:g} s")
    found: dict[str, list[float]] = {each.name: [] for each in monitors if not isinstance(each, Breakpoint)}
    tails: dict[str, list[float]] = {each.name: [] for each in monitors if isinstance(each, DataCollection)}
    steps = 0
    for generator in rng.spawn(replications):
        run = Simulation(flat, generator, monitors)
        if warm_up > 0:
            steps += run.run(until=warm_up)
            run.reset_monitors()
        steps += run.run(until=until)
        for name, statistics in run.statistics().items():
            if not math.isnan(statistics.mean):
                found[name].append(statistics.mean)
        for name, values in tails.items():
            if len(observed := run.values(name)):
                values.append(float(np.quantile(observed, 0.95)))
    estimates = {}
    for name, values in found.items():
        mean, half_width = estimate(values)
        p95 = math.fsum(tails[name]) / len(tails[name]) if tails.get(name) else None
        estimates[name] = ReplicatedMean(mean, half_width, values, p95)
    return Replications(estimates, steps)
