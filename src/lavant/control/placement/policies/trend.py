"""The load trend: a straight line through the recent past, fitted with weights that halve with age.

    minimise  Σ wᵢ (yᵢ − level − slope · xᵢ)²,    wᵢ = 2^(−age / half-life),    xᵢ = seconds from now (≤ 0)

The slope is shrunk by a few of its own standard errors, so that noise alone gives no trend and a steady rise keeps
almost all of its slope. Unlike a moving average, the level does not lag behind a rise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from lavant.control.placement.view import TotalLoad

SAMPLES_MIN = 3
"""A line through two points has no residuals to judge it by."""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """The load now, and its change per second.

    >>> history = [TotalLoad(t, 2.0 + t / 10_000) for t in range(0, 60_000, 5_000)]
    >>> fit_trend(history, 60_000, half_life_ms=20_000, errors=1.0).at(10_000)
    9.0
    """

    level: float
    slope_per_s: float

    def at(self, lead_ms: int) -> float:
        """The load expected after `lead_ms`, never negative."""
        return round(max(0.0, self.level + self.slope_per_s * lead_ms / 1000), 9)

    def highest_until(self, lead_ms: int) -> float:
        return max(self.at(0), self.at(lead_ms))


def fit_trend(history: Sequence[TotalLoad], now_ms: int, *, half_life_ms: int, errors: float) -> Trend:
    """The trend at `now_ms`; flat at the mean while there are too few samples."""
    weights = [2.0 ** (-(now_ms - sample.time_ms) / half_life_ms) for sample in history]
    total = math.fsum(weights)
    if total == 0:
        return Trend(level=0.0, slope_per_s=0.0)
    xs = [(sample.time_ms - now_ms) / 1000 for sample in history]
    x_mean = math.fsum(w * x for w, x in zip(weights, xs, strict=True)) / total
    y_mean = math.fsum(w * s.cpu for w, s in zip(weights, history, strict=True)) / total
    spread = math.fsum(w * (x - x_mean) ** 2 for w, x in zip(weights, xs, strict=True))
    if len(history) < SAMPLES_MIN or spread == 0:
        return Trend(level=y_mean, slope_per_s=0.0)
    common = math.fsum(w * (x - x_mean) * (s.cpu - y_mean) for w, x, s in zip(weights, xs, history, strict=True))
    slope = common / spread
    residuals = math.fsum(
        w * (s.cpu - y_mean - slope * (x - x_mean)) ** 2 for w, x, s in zip(weights, xs, history, strict=True)
    )
    # Kish's effective number of samples, as the weights are not equal.
    effective = total**2 / math.fsum(w * w for w in weights)
    error = math.sqrt(residuals / spread / max(1.0, effective - 2))
    slope = math.copysign(max(0.0, abs(slope) - errors * error), slope)
    return Trend(level=max(0.0, y_mean - slope * x_mean), slope_per_s=slope)
