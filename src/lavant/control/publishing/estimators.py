"""Estimates of the load and of the broker's capacity.

"Auto-tuned Publisher in a Pub/Sub System", Section IV-B: λ_est is `LoadEstimate.per_s` (Equation 1), η_est
`Capacity.per_s` (Equation 2). Both are exponentially weighted means, in which the first sample counts in full: starting
from zero, the capacity would hold N down to 1 for the first transfers.
"""

from __future__ import annotations

INTERVAL_MS_SHOWN = 1000
"""A shorter unfinished interval says too little to be shown."""


class LoadEstimate:
    """Publications received per second, sampled whenever `sample` is called.

    >>> load = LoadEstimate(gain=0.5, now_ms=0)
    >>> for _ in range(10):
    ...     load.arrive()
    >>> load.sample(1000)
    >>> load.per_s
    10.0
    >>> load.sample(2000)
    >>> load.per_s, load.estimate(3000)
    (5.0, 2.5)
    """

    def __init__(self, *, gain: float, now_ms: int) -> None:
        self.per_s = 0.0
        self.sampled_ms = now_ms
        self._gain = gain
        self._arrived = 0
        self._is_first = True

    def arrive(self) -> None:
        self._arrived += 1

    def sample(self, now_ms: int) -> None:
        """End an interval, if it has any length."""
        if now_ms <= self.sampled_ms:
            return
        self.per_s = self._after(now_ms)
        self.sampled_ms = now_ms
        self._arrived = 0
        self._is_first = False

    def estimate(self, now_ms: int) -> float:
        """For display: it falls even when nothing is sampled because nothing arrives."""
        return self.per_s if now_ms - self.sampled_ms < INTERVAL_MS_SHOWN else self._after(now_ms)

    def _after(self, now_ms: int) -> float:
        sample_per_s = 1000 * self._arrived / (now_ms - self.sampled_ms)
        gain = 0.0 if self._is_first else self._gain
        return gain * self.per_s + (1 - gain) * sample_per_s


class Capacity:
    """Publications per second that the broker takes: with each transfer, those in flight divided by its duration.

    >>> capacity = Capacity(gain=0.75)
    >>> capacity.add(in_flight=2, duration_ms=100)
    >>> capacity.per_s
    20.0
    >>> capacity.add(in_flight=2, duration_ms=200)
    >>> capacity.per_s
    17.5
    """

    def __init__(self, *, gain: float) -> None:
        self.per_s: float | None = None
        """None before the first transfer has ended."""
        self._gain = gain

    def add(self, *, in_flight: int, duration_ms: int) -> None:
        sample_per_s = 1000 * in_flight / max(1, duration_ms)  # durations below the clock's resolution count as 1 ms
        if self.per_s is None:
            self.per_s = sample_per_s
        else:
            self.per_s = self._gain * self.per_s + (1 - self._gain) * sample_per_s
