"""How much somebody may do in a time: a bucket that fills steadily, and is emptied by what is done."""

from __future__ import annotations


class TokenBucket:
    """Holds what may be done in one second. Whoever finds it full may take more than it holds, and then pays it off: so
    a request that is larger than the bucket is possible too, and the rate holds in the long run.

    >>> bucket = TokenBucket(rate_per_s=10)
    >>> bucket.take(25, now_s=0.0), bucket.take(1, now_s=1.0), bucket.take(1, now_s=1.7)
    (0.0, 0.6, 0.0)
    """

    __slots__ = ("_filled_s", "_held", "rate_per_s")

    def __init__(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        self._held = self._size
        self._filled_s = 0.0

    @property
    def _size(self) -> float:
        """At least one: a rate of less than one a second is possible."""
        return max(1.0, self.rate_per_s)

    def take(self, count: int, now_s: float) -> float:
        """0 if so much may be done now, or else in how many seconds it may."""
        self._held = min(self._size, self._held + max(0.0, now_s - self._filled_s) * self.rate_per_s)
        self._filled_s = now_s
        missing = min(float(count), self._size) - self._held
        if missing > 0:
            return round(missing / self.rate_per_s, 3)
        self._held -= count
        return 0.0
