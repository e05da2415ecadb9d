"""Configuration of estimation: the length of windows, and how long they wait for late rows."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue

WINDOW_MS_MAX = 3_000_000
"""Fifty minutes: the squared gaps between arrivals of a window, in µs², then always fit 63 bits."""
LATENESS_MS_MAX = 24 * 3600 * 1000


class EstimationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Windows are [k · window_ms, (k + 1) · window_ms), counted from 1970.

    A window closes when a row arrives that is `lateness_ms` younger than its end. With `topics_overall` there is also
    an estimate for each topic over all job types, because the variability of merged arrivals cannot be computed from
    that of the parts. `rows_open_max` bounds the rows of open windows in the embedded estimator.
    """

    window_ms: int = 10_000
    lateness_ms: int = 5_000
    topics_overall: bool = True
    rows_open_max: int = 5_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.window_ms <= WINDOW_MS_MAX:
            raise InvalidValue(
                f"window_ms must lie between 1 and {WINDOW_MS_MAX}, got {self.window_ms}; "
                "start at a window that holds about a hundred arrivals"
            )
        if not 0 <= self.lateness_ms <= LATENESS_MS_MAX:
            raise InvalidValue(
                f"lateness_ms must lie between 0 and {LATENESS_MS_MAX}, got {self.lateness_ms}; "
                "start at twice the interval in which hosts write telemetry"
            )
        if self.rows_open_max < 1:
            raise InvalidValue(f"rows_open_max must be positive, got {self.rows_open_max}")
