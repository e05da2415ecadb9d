"""Limits of a filter, which bound what one subscriber may cost all others.

Matching, covering and forwarding do work in proportion to a filter's size, and expansion into a disjunction of
conjunctions can be exponential. So each dimension has a limit of its own, checked before the work is done.
"""

from __future__ import annotations

import msgspec


class FilterLimits(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    text_length_max: int = 8192
    """Characters of the text."""
    depth_max: int = 32
    """Nested parentheses and `not`: each level is a level of recursion."""
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
"""For filters written by people."""

CANONICAL_LIMITS = FilterLimits(
    text_length_max=4 * 1024 * 1024, predicates_max=64 * 1024, list_values_max=64 * 1024, string_bytes_max=8192
)
"""For the output of `str(filter)` and `filter.triples()`: expansion makes the text of an accepted filter longer, and it
must be readable wherever it was stored or sent.
"""

NO_LIMITS = FilterLimits(**dict.fromkeys(FilterLimits.__struct_fields__, 1 << 62))
"""For filters accepted before, perhaps by a version with other limits: they are read without limits."""
