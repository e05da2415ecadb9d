"""Distributions from two moments, as values that stand for them: the middles of `POINTS` equally likely parts.

Sums and maxima of times are then taken part by part, with the parts of each time in an order of its own. That is a
Latin hypercube with fixed shuffles: it samples, but throws no dice, so a prediction is a function of its input.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lavant.models.layout import Floats, Numbers

POINTS = 4096
_GRID = 2048


@lru_cache(maxsize=1024)
def gamma_quantiles(scv: float) -> Floats:
    """The middles of equally likely parts of the gamma distribution with mean 1, ascending; their mean is 1.

    The density of the logarithm is smooth for every shape, so its cumulative sum over a grid will do.

    >>> float(gamma_quantiles(1.0)[POINTS * 95 // 100].round(2)), gamma_quantiles(0.0).tolist()[:2]
    (3.0, [1.0, 1.0])
    """
    if scv <= 0:
        return np.ones(POINTS)
    deviation = np.sqrt(scv)
    log = np.linspace(-8.0 * deviation - 25.0 * scv, np.log1p(8.0 * deviation + 40.0 * scv), _GRID)
    exponent = (log - np.exp(log)) / scv
    cumulated = np.cumsum(np.exp(exponent - exponent.max()))
    middles = (np.arange(POINTS) + 0.5) / POINTS
    values = np.exp(np.interp(middles, cumulated / cumulated[-1], log))
    values = np.asarray(values / values.mean())
    values.flags.writeable = False
    return values


@lru_cache(maxsize=4096)
def shuffle(number: int) -> Numbers:
    """The `number`-th fixed order of the parts: sorted by a hash (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = (np.arange(POINTS, dtype=np.uint64) + np.uint64(1 + number * POINTS)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    order = np.argsort(x ^ (x >> np.uint64(31)), kind="stable")
    order.flags.writeable = False
    return order
