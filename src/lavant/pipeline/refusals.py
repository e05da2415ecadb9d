"""Refused publications in a few words: how many, and for which reasons most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

REASONS_MAX = 3


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reasons with their numbers, the most frequent first; ties in the order in which they came."""
    return dict(Counter(reasons).most_common())


def in_words(reasons: Mapping[str, int]) -> str:
    """
    >>> in_words({"not JSON": 2, "no number": 1})
    '2 for: not JSON; 1 for: no number'
    """
    shown = [f"{count} for: {reason}" for reason, count in list(reasons.items())[:REASONS_MAX]]
    others = sum(list(reasons.values())[REASONS_MAX:])
    return "; ".join([*shown, f"{others} for other reasons"] if others else shown)
