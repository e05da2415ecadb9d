"""Bounds on a filter: what one subscriber may cost everybody else.

Matching, covering and forwarding do work in proportion to a filter's size, and expansion into a disjunction of
conjunctions can be exponential in it. So each dimension has a limit of its own, checked before the work is done.
"""

from __future__ import annotations

import msgspec


class FilterLimits(msgspec.Struct, frozen=True, kw_only=True):
    text_length_max: int = 8192
    """Characters of the text."""
    depth_max: int = 32
    """Parentheses and `not` inside each other: each level is a level of recursion."""
    predicates_max: int = 256
    conjunctions_max: int = 64
    """Conjunctions after expansion: each is an entry of its own in the index."""
    list_values_max: int = 1024
    """Values of one in-list."""
    string_bytes_max: int = 1024
    """UTF-8 bytes of one string literal."""
    patterns_max: int = 16
    """Suffix and contains patterns on one attribute: deciding what they imply together is a search."""


FILTER_LIMITS = FilterLimits()
"""For what people write."""

CANONICAL_LIMITS = FilterLimits(
    text_length_max=4 * 1024 * 1024,
    predicates_max=64 * 1024,
    list_values_max=64 * 1024,
    string_bytes_max=8192,
)
"""For what `str(filter)` and `filter.triples()` printed: expansion makes the text of an accepted filter longer, and it
must be readable again wherever it was stored or sent."""

NO_LIMITS = FilterLimits(**dict.fromkeys(FilterLimits.__struct_fields__, 1 << 62))
"""For filters that were accepted before, maybe by a version with other limits: they are read again as they are."""
