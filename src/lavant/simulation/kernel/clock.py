"""What a host takes for the time: a clock that may be wrong, run fast or slow, and jump."""

from __future__ import annotations

START_MS = 1_750_000_000_000
"""The world's start on a clock that is right; far from 0, so that jumps back do not end below it."""
DRIFT_PPM_MAX = 500_000
_MILLION = 1_000_000


class Clock:
    """A host's wall clock, as a function of the world's time.

    >>> clock = Clock()
    >>> clock.drift(100, now_us=0)
    >>> clock.now_ms(10_000_000) - START_MS
    10001
    >>> clock.jump(-500, now_us=10_000_000)
    >>> clock.now_ms(10_000_000) - START_MS
    9501
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self.drift_ppm = 0
        self.jumped_us = 0
        """By how much it was set, in all."""
        self._base_us = 0
        self._shown_us = start_ms * 1000

    def now_ms(self, now_us: int, *, without_us: int = 0) -> int:
        """What it shows; `without_us` is a part of `jumped_us` that the reader does not want to know of."""
        return (self._now_us(now_us) - without_us) // 1000

    def jump(self, by_ms: int, *, now_us: int) -> None:
        self._set(self._now_us(now_us) + by_ms * 1000, now_us)

    def drift(self, ppm: int, *, now_us: int) -> None:
        """From now on the clock gains so many microseconds a second."""
        assert abs(ppm) <= DRIFT_PPM_MAX, "a clock goes forward"
        self._set(self._now_us(now_us), now_us)
        self.drift_ppm = ppm

    def correct(self, *, now_us: int) -> None:
        """Set it right, as a time service would."""
        self._set(START_MS * 1000 + now_us, now_us)
        self.drift_ppm = 0

    def until_us(self, wanted_ms: int, now_us: int, *, without_us: int = 0) -> int:
        """The world's time until `now_ms` is `wanted_ms`, if nobody sets the clock; 0 if it is past."""
        wanted_us = wanted_ms * 1000 + without_us - self._shown_us
        return max(0, -(-wanted_us * _MILLION // (_MILLION + self.drift_ppm)) - (now_us - self._base_us))

    def _now_us(self, now_us: int) -> int:
        return self._shown_us + (now_us - self._base_us) * (_MILLION + self.drift_ppm) // _MILLION

    def _set(self, shown_us: int, now_us: int) -> None:
        self.jumped_us += shown_us - self._now_us(now_us)
        self._shown_us, self._base_us = shown_us, now_us
