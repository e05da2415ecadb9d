"""Loads to compare allocators under, for networks like the case study of the allocation paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lavant.simulation.network.curves import Curve, steps
from lavant.simulation.placement.curves import trading_day


def burst(
    *,
    quiet_per_s: Sequence[float] = (0.5 / 60, 1.0 / 60, 0.5 / 60),
    busy_per_s: Sequence[float] = (3.0 / 60, 3.5 / 60, 3.0 / 60),
    jobs: int = 300,
    quiet_share: float = 0.2,
) -> tuple[Curve, float]:
    """The bursty load of the allocation paper (Section VI-F), and its length in seconds.

    The first fifth of 300 jobs arrives at low rates, the rest at high ones. The paper counts 100 jobs of each type; so
    types would not change at the same time, and never make the load together that its result is about. Here all change
    when a fifth of all jobs is expected to have arrived.
    """
    change_s = quiet_share * jobs / sum(quiet_per_s)
    length_s = change_s + (1.0 - quiet_share) * jobs / sum(busy_per_s)
    return steps([change_s, length_s], [list(quiet_per_s), list(busy_per_s)]), length_s


def day(*, seed: int, peak_per_s: Sequence[float] = (9.0 / 60, 10.5 / 60, 9.0 / 60)) -> tuple[Curve, float]:
    """A trading day from 04:00 to 20:00 in steps of a minute, with these rates at its peak; and its length."""
    shape = trading_day(seed=seed, peak_per_s=1.0, length_s=16 * 60)
    ends_s = np.arange(60.0, 60.0 * len(shape) + 1.0, 60.0, dtype=np.float64)
    return Curve(ends_s=ends_s, rates_per_s=np.outer(shape, peak_per_s)), float(ends_s[-1])
