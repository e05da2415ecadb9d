"""Distributions of times on a grid: service times, waits, and their sums.

A grid has `POINTS` times from 0 on, `step_s` apart. A distribution is its cumulated probabilities there; what lies
beyond the grid stays beyond it.
"""

from __future__ import annotations

import math

import numpy as np

from lavant.models.layout import Floats
from lavant.models.reliable_queue.scenario import ServiceFamily, ServiceTime

POINTS = 1 << 14
_LOGARITHMS = 4096


def times(step_s: float) -> Floats:
    return np.asarray(step_s * np.arange(POINTS), np.float64)


def service_cdf(service: ServiceTime, at_s: Floats) -> Floats:
    """The share of services that take no longer than each of the times.

    >>> service_cdf(ServiceTime(mean_s=2.0), np.array([2.0])).round(4).tolist()
    [0.6321]
    """
    x = at_s / service.mean_s
    if service.scv == 0:
        return np.where(x >= 1.0, 1.0, 0.0)
    if service.family is ServiceFamily.LOGNORMAL:
        deviation = math.sqrt(math.log1p(service.scv))
        with np.errstate(divide="ignore"):
            z = (np.log(x) + deviation**2 / 2) / deviation
        return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in z])
    if service.scv == 1:
        return np.asarray(-np.expm1(-x))
    if service.family is ServiceFamily.HYPEREXPONENTIAL:
        share = 0.5 * (1.0 + math.sqrt((service.scv - 1.0) / (service.scv + 1.0)))
        tails = share * np.exp(-2.0 * share * x) + (1.0 - share) * np.exp(-2.0 * (1.0 - share) * x)
        return np.asarray(1.0 - tails)
    return _gamma_cdf(x, service.scv)


def _gamma_cdf(x: Floats, scv: float) -> Floats:
    """With mean 1. The density of the logarithm is smooth for every shape."""
    deviation = math.sqrt(scv)
    log = np.linspace(-8.0 * deviation - 30.0 * scv, math.log1p(12.0 * deviation + 60.0 * scv), _LOGARITHMS)
    exponent = (log - np.exp(log)) / scv
    density = np.exp(exponent - exponent.max())
    cumulated = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    with np.errstate(divide="ignore"):
        return np.asarray(np.interp(np.log(x), log, cumulated / cumulated[-1]))


def residual_cdf(cdf: Floats, step_s: float) -> Floats:
    """The time that a service in progress still takes, seen at a random moment."""
    tails = 1.0 - cdf
    areas = np.concatenate([[0.0], np.cumsum(0.5 * step_s * (tails[1:] + tails[:-1]))])
    return np.asarray(areas / areas[-1])


def wait_cdf(probability: float, mean_s: float, at_s: Floats) -> Floats:
    """No wait, or with this probability an exponential one; `mean_s` is that of all waits."""
    if probability <= 0 or mean_s <= 0:
        return np.ones_like(at_s)
    return np.asarray(1.0 - probability * np.exp(-at_s * probability / mean_s))


def mean_of(cdf: Floats, step_s: float) -> float:
    """The mean of what lies on the grid."""
    tails = 1.0 - cdf
    return float(step_s * (tails.sum() - 0.5 * (tails[0] + tails[-1])))


def transform(cdf: Floats) -> np.ndarray[tuple[int], np.dtype[np.complex128]]:
    """For sums of independent times: multiply transforms, then take `inverse`.

    The probability between two points is split between them, so that means add up.
    """
    between = np.diff(cdf, prepend=0.0)
    atom, rest = between[0], between[1:]
    mass = np.zeros(POINTS)
    mass[0] = atom
    mass[1:] += 0.5 * rest
    mass[:-1] += 0.5 * rest
    return np.fft.rfft(mass, 2 * POINTS)


def inverse(product: np.ndarray[tuple[int], np.dtype[np.complex128]]) -> Floats:
    """The cumulated probabilities of a sum. Half of what is split to a point lies beyond it."""
    mass = np.maximum(np.fft.irfft(product, 2 * POINTS)[:POINTS], 0.0)
    beyond = np.minimum(mass, np.concatenate([mass[1:2], mass[1:]]))
    return np.asarray(np.minimum(1.0, np.cumsum(mass) - 0.5 * beyond))


def percentile_s(cdf: Floats, step_s: float, fraction: float) -> float:
    """Infinite if it lies beyond the grid."""
    index = int(np.searchsorted(cdf, fraction))
    if index >= len(cdf):
        return math.inf
    if index == 0:
        return 0.0
    low, high = cdf[index - 1], cdf[index]
    return float(step_s * (index - 1 + (fraction - low) / (high - low)))
