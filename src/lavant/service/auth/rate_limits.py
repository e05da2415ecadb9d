"""Rate limits: the token bucket."""

from __future__ import annotations


class TokenBucket:
    """Holds the tokens of one second. A full bucket may be overdrawn: so requests larger than the bucket are possible,
    and the rate still holds in the long run.

    >>> bucket = TokenBucket(rate_per_s=10)
    >>> bucket.take(25, now_s=0.0), bucket.take(1, now_s=1.0), bucket.take(1, now_s=1.7)
    (0.0, 0.6, 0.0)
    """

    __slots__ = ("_filled_s", "_tokens", "rate_per_s")

    def __init__(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        self._tokens = self._size
        self._filled_s = 0.0

    @property
    def _size(self) -> float:
        """At least one: a rate of less than one a second is possible."""
        return max(1.0, self.rate_per_s)

    def left(self, now_s: float) -> float:
        """The tokens that can be taken now; negative while the bucket is overdrawn."""
        return min(self._size, self._tokens + max(0.0, now_s - self._filled_s) * self.rate_per_s)

    def take(self, count: int, now_s: float) -> float:
        """Take tokens, and return 0; or return the seconds to wait if there are too few."""
        self._tokens = min(self._size, self._tokens + max(0.0, now_s - self._filled_s) * self.rate_per_s)
        self._filled_s = now_s
        missing = min(float(count), self._size) - self._tokens
        if missing > 0:
            return round(missing / self.rate_per_s, 3)
        self._tokens -= count
        return 0.0
