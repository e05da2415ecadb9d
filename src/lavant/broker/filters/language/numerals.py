"""A double as the shortest text that reads back to it."""

from __future__ import annotations

from lavant.core.publications.attributes import INTEGER_MAX


def numeral(value: float) -> str:
    """`300000` rather than `300000.0`; beyond ±2^53, where integers are refused, with a point or an exponent."""
    if value.is_integer() and -INTEGER_MAX <= value <= INTEGER_MAX:
        return str(int(value))
    return repr(value)
