"""Checks of arguments, which raise `InvalidValue` in the words of the caller before anything is sent.

Durations are in seconds, in names that end in `_s`. Names in milliseconds are accepted, with a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import TypeVar

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.core.errors import InvalidValue

T = TypeVar("T")

SECONDS_MAX = 1e9
"""30 years; sockets and locks take no number that is much larger."""


def check_seconds(name: str, value: float, low: float = 0.0, high: float = SECONDS_MAX, hint: str = "") -> None:
    """
    >>> check_seconds("timeout_s", -1.0)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: timeout_s must not be negative, nor above 30 years, got -1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidValue(f"{name} must be a number of seconds, got {value!r:.40}")
    if not low <= value <= high:
        lowest = f"must not be below {low:g}" if low else "must not be negative"
        bounds = f"{lowest}, nor above 30 years" if high == SECONDS_MAX else f"must be between {low:g} and {high:g}"
        raise InvalidValue(f"{name} {bounds}, got {value!r:.40}{hint}")


def check_count(name: str, value: int, low: int, high: int | None = None, hint: str = "") -> None:
    """
    >>> check_count("prefetch", "many", 1, 1000)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: prefetch must be a whole number, got 'many'
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} must be a whole number, got {value!r:.40}")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidValue(f"{name} must be {bounds}, got {value!r:.40}{hint}")


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
    check_seconds(f"{name}_s", seconds)
    return round(seconds * SECOND_MS)


def listed(function: str, values: Iterable[T]) -> list[T]:
    """
    >>> listed("publish_many", 5)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: publish_many takes a list, or something else to iterate over, got 5
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        return list(values)
    raise InvalidValue(f"{function} takes a list, or something else to iterate over, got {values!r:.40}")
