"""Durations in arguments: seconds, in names that end in `_s`. Names in milliseconds are accepted, with a warning."""

from __future__ import annotations

import math
import warnings

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.core.errors import InvalidValue


def milliseconds(name: str, seconds: float | None, old_ms: int | None, *, stacklevel: int = 4) -> int | None:
    """The value of the argument `NAME_s` in milliseconds, or that of `NAME_ms`, its name before.

    >>> milliseconds("wait", 1.5, None)
    1500
    >>> milliseconds("wait", "soon", None)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: wait_s must be a number of seconds, got 'soon'
    """
    if old_ms is not None:
        if seconds is not None:
            raise InvalidValue(f"give {name}_s or {name}_ms, not both")
        warnings.warn(f"{name}_ms is now {name}_s, in seconds", DeprecationWarning, stacklevel=stacklevel)
        return old_ms
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidValue(f"{name}_s must be a number of seconds, got {seconds!r:.40}")
    if not 0 <= seconds < 1e9:
        raise InvalidValue(f"{name}_s must not be negative, nor longer than 30 years, got {seconds!r:.40}")
    return round(seconds * SECOND_MS)
