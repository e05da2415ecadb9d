"""Pauses after failures: twice as long each time, and never quite the same for two publishers."""

from __future__ import annotations

from lavant.control.tuning.config import PublisherConfig

_GOLDEN = 0x9E3779B97F4A7C15
_BITS = 64
_DOUBLINGS_MAX = 40
"""More would be above any maximum, and numbers without end."""


def pause_ms(failures: int, config: PublisherConfig) -> int:
    """After so many failures in a row: between half of the nominal pause and all of it.

    >>> config = PublisherConfig(backoff_ms_min=100, backoff_ms_max=1000)
    >>> [50 << n <= pause_ms(n + 1, config) <= 100 << n for n in range(4)], 500 <= pause_ms(10**6, config) <= 1000
    ([True, True, True, True], True)
    """
    nominal_ms = min(config.backoff_ms_min << min(failures - 1, _DOUBLINGS_MAX), config.backoff_ms_max)
    scattered = (config.jitter_seed + failures) * _GOLDEN % (1 << _BITS)  # multiplicative hashing
    return max(1, nominal_ms - (nominal_ms // 2) * scattered // (1 << _BITS))
