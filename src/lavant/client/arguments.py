"""Checks of arguments, which raise `InvalidValue` in the words of the caller before anything is sent.

Durations are in seconds, in names that end in `_s`. Names in milliseconds are accepted, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from lavant.core.errors import InvalidValue
from lavant.core.seconds import SECOND_MS, SECONDS_MAX, check_seconds, in_milliseconds, warn_of_milliseconds

T = TypeVar("T")


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


def check_text(name: str, value: str) -> None:
    """
    >>> check_text("topic", 5)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: topic must be a text, got 5
    """
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a text, got {value!r:.40}")


def seconds(name: str, value: float | None, old_ms: int | None) -> float | None:
    """The value of the argument `NAME_s` of a method, or that of `NAME_ms`, its name before.

    >>> seconds("wait", 1.5, None)
    1.5
    """
    if old_ms is None:
        return value
    if value is not None:
        raise InvalidValue(f"give {name}_s or {name}_ms, not both")
    check_count(f"{name}_ms", old_ms, 0)
    warn_of_milliseconds(f"{name}_ms", f"{name}_s", stacklevel=4)
    return old_ms / SECOND_MS


def milliseconds(name: str, value: float | None, most_ms: int | None = None) -> int | None:
    """
    >>> milliseconds("wait_s", 1.5)
    1500
    >>> milliseconds("wait_s", "soon")
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: wait_s must be a number of seconds, got 'soon'
    """
    if value is not None:
        check_seconds(name, value, high=SECONDS_MAX if most_ms is None else most_ms / SECOND_MS)
    return in_milliseconds(value)


def listed(function: str, values: Iterable[T]) -> list[T]:
    """
    >>> listed("publish_many", 5)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: publish_many takes a list, or something else to iterate over, got 5
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        return list(values)
    raise InvalidValue(f"{function} takes a list, or something else to iterate over, got {values!r:.40}")
