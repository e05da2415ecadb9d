"""Load curves of a simulated cluster: publication rates over time, one number per second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]
"""Publications a second, for each second."""


def ramp(*, peak_per_s: float = 350.0, rise_s: int = 1200, hold_s: int = 300, rest_s: int = 120) -> Curve:
    """Rest, a steady rise from 0 to the peak, a hold, the way down, and rest (e-StreamHub, Figure 8)."""
    up = np.linspace(0.0, peak_per_s, rise_s)
    rest = np.zeros(rest_s)
    return np.concatenate([rest, up, np.full(hold_s, peak_per_s), up[::-1], rest])


def trading_day(*, seed: int, peak_per_s: float = 190.0, length_s: int = 2880, bursts: int = 3) -> Curve:
    """A trading day from 04:00 to 20:00, compressed: little before the open at 09:30, a steep rise with a long decay,
    less over noon, a peak towards the close at 16:00, little after it, and some short bursts of news.

    The default is twenty times as fast as the day, as in e-StreamHub, Section VI-E.
    """
    random = np.random.default_rng([seed, 1])
    hour = 4.0 + 16.0 * np.arange(length_s) / length_s
    opened = _step(hour, 9.5, 0.75) * (1.0 - _step(hour, 16.1, 0.4))
    open_peak = 0.65 * np.exp(-np.maximum(hour - 9.5, 0.0) / 0.7)
    close_peak = 0.72 * np.exp(-np.maximum(16.0 - hour, 0.0) / 0.5)
    shape = 0.04 + 0.03 * _step(hour, 8.0, 0.3) + opened * (0.22 + open_peak + close_peak)
    for at, height in zip(random.uniform(10.5, 15.0, bursts), random.uniform(0.1, 0.3, bursts), strict=True):
        shape += height * np.exp(-np.abs(hour - at) / 0.15)
    return _scaled(shape, peak_per_s)


def replay(times_ms: NDArray[np.int64], *, speedup: int = 20, peak_per_s: float = 190.0, smooth_s: int = 5) -> Curve:
    """A recorded day, from the times of its events, `speedup` times as fast and scaled to the peak.

    `smooth_s` seconds of the result are averaged: a second of it holds `speedup` recorded ones.
    """
    second = (times_ms - times_ms.min()) // (1000 * speedup)
    counts = np.bincount(second).astype(np.float64)
    smooth = np.convolve(counts, np.full(smooth_s, 1.0 / smooth_s), mode="same")
    return _scaled(smooth, peak_per_s)


def _step(hour: NDArray[np.float64], at: float, width: float) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip((hour - at) / (width / 4.0), -50.0, 50.0))), dtype=np.float64)


def _scaled(shape: NDArray[np.float64], peak_per_s: float) -> Curve:
    return np.asarray(peak_per_s * shape / shape.max(), dtype=np.float64)
