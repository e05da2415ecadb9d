"""Attribute names and values of publications, and their checks.

A value is a string, an integer, a float or a boolean. Integers and floats are one kind, *number*: `volume > 300000`
holds for 300001 as for 300000.5. Numbers are IEEE doubles; an integer that a double cannot hold exactly is refused
rather than rounded, because `id = 9007199254740993` must not match its neighbour. Booleans are not numbers.
"""

from __future__ import annotations

import math
from functools import lru_cache

from lavant.core.errors import InvalidValue, LimitExceeded

AttributeValue = str | int | float | bool

NAME_LENGTH_MAX = 128
STRING_BYTES_MAX = 64 * 1024
INTEGER_MAX = 2**53
ATTRIBUTES_MAX = 256
"""Attributes of one publication."""
NAMES_KNOWN = 4096


def check_name(name: object) -> str:
    """Returns the attribute name, or raises with the problem."""
    if not isinstance(name, str):
        raise InvalidValue(f"an attribute name must be a string, got {type(name).__name__} {name!r}")
    if not name:
        raise InvalidValue("an attribute name must not be empty")
    if len(name) > NAME_LENGTH_MAX:
        raise LimitExceeded(
            f"attribute name {name[:32]!r}… has {len(name)} characters, at most {NAME_LENGTH_MAX} are allowed"
        )
    if name[0] == "@":
        raise InvalidValue(f"attribute name {name!r} starts with '@', which is kept for @id, @time_ms and @payload")
    if not name.isprintable():
        raise InvalidValue(f"attribute name {name!r} holds a control character or a lone surrogate; remove it")
    return name


check_known_name = lru_cache(NAMES_KNOWN)(check_name)
"""The same with a cache, for names that repeat."""


def check_value(name: str, value: object) -> AttributeValue:
    """Returns the value of attribute `name`, or raises with the problem."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValue(f"attribute {name!r} is {value}; leave the attribute out where there is no number")
        return value
    if isinstance(value, str):
        return _check_string(name, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise LimitExceeded(
                f"integer {_shorten(value)} of attribute {name!r} is beyond ±2^53, "
                "where doubles skip integers; send it as a string"
            )
        return value
    raise InvalidValue(
        f"attribute {name!r} is of type {type(value).__name__}; "
        "use a string, an integer, a float or a boolean (and `payload` for anything else)"
    )


def _check_string(name: str, value: str) -> str:
    if len(value) <= STRING_BYTES_MAX and value.isascii():
        return value
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue(f"attribute {name!r} holds a lone surrogate at character {error.start}") from None
    if size_bytes > STRING_BYTES_MAX:
        raise LimitExceeded(
            f"attribute {name!r} has {size_bytes} bytes, at most {STRING_BYTES_MAX} are allowed; use the payload"
        )
    return value


def _shorten(value: int) -> str:
    if value.bit_length() > 128:  # printing a huge integer costs time quadratic in its length
        return f"of {value.bit_length()} bits"
    return str(value)
