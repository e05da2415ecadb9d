"""How long a transfer takes that has the broker almost to itself, and how much longer transfers take in fact.

A transfer of k publications is taken to need `start + (k - 1) · each`. Both are learnt from transfers that began with
few others under way, by normalised least mean squares: each such transfer corrects the two, in proportion to what they
contributed, by a part of the error. Means and not minima, because times scatter on any network: compared with a
minimum, most transfers are late.

A transfer with many others under way teaches nothing about one that is alone, unless transfers are quicker than
expected on average: others can only make them slower, so then the expectation is too long.

The *strain* is the running mean of real over expected times, of all transfers: 1 means that it makes no difference how
many are under way, and more that they wait for each other, or for something else.
"""

from __future__ import annotations

RIVALS_MAX = 1
"""With so many others under way a transfer still counts as having the broker to itself."""
STRAIN_NONE = 0.95
"""Below it, transfers are quicker than expected, whatever else is under way."""
_LEARNING = 1 / 16
_SMOOTHING = 1 / 32
_RATIO_MAX = 2.0
"""A transfer counts for at most so many times what was expected: how long a stall was says nothing about the next."""


class TransferTimes:
    """Learns from transfers that ended.

    >>> times = TransferTimes()
    >>> for _ in range(300):
    ...     times.add(size=1, duration_ms=145, rivals=0)
    ...     times.add(size=11, duration_ms=195, rivals=1)
    >>> round(times.expected_ms(1)), round(times.expected_ms(21)), round(times.strain, 1)
    (145, 245, 1.0)
    >>> for _ in range(100):
    ...     times.add(size=1, duration_ms=290, rivals=9)
    >>> round(times.expected_ms(1)), round(times.strain, 1)
    (145, 2.0)
    """

    def __init__(self) -> None:
        self.strain = 1.0
        self._start_ms: float | None = None
        self._each_ms = 0.0

    @property
    def are_known(self) -> bool:
        return self._start_ms is not None

    def expected_ms(self, size: int) -> float:
        """Of a transfer of so many; at least the 1 ms that a clock can tell."""
        return max(1.0, (self._start_ms or 0.0) + (size - 1) * self._each_ms)

    def relax(self) -> None:
        """Forget the strain: fewer are under way from now on, and what was seen before says nothing about that."""
        self.strain = 1.0

    def lengthen(self, more_ms: float) -> None:
        """The way to the broker takes so much longer, whatever is sent."""
        self._start_ms = (self._start_ms or 0.0) + more_ms

    def add(self, *, size: int, duration_ms: int, rivals: int) -> None:
        if self._start_ms is None:
            self._start_ms = float(duration_ms)
        expected_ms = self.expected_ms(size)
        counted_ms = min(duration_ms, _RATIO_MAX * expected_ms)
        self.strain += _SMOOTHING * (counted_ms / expected_ms - self.strain)
        if rivals <= RIVALS_MAX or self.strain < STRAIN_NONE:
            more = size - 1
            step_ms = _LEARNING * (counted_ms - expected_ms) / (1 + more * more)
            self._start_ms = max(0.0, self._start_ms + step_ms)
            self._each_ms = max(0.0, self._each_ms + step_ms * more)
