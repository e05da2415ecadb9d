"""Covering, equivalence and intersection of filters.

A covered subscription need not be forwarded: its publications arrive anyway. A subscription that does not intersect an
advertisement need not travel towards that publisher.

For filters of one conjunction all answers are exact (but see `string_search` for its bound). For several, `covers`
requires each conjunction of the inner filter to be covered by one of the outer's. This is sound but not complete: the
parts of `x < 5 and a = 1 or x >= 5` cover `a = 1 and x > 0` only together, which is not found. A missed covering costs
a forwarded subscription, never a publication.
"""

from __future__ import annotations

from lavant.broker.filters.algebra.inclusion import conjunction_covers, conjunctions_intersect
from lavant.broker.filters.algebra.string_search import SearchBudget
from lavant.broker.filters.model import Filter


def covers(outer: Filter, inner: Filter) -> bool:
    """Whether every publication that matches `inner` matches `outer`.

    >>> covers(Filter.parse("volume > 1000"), Filter.parse("volume > 2000 and class = 'STOCK'"))
    True
    """
    budget = SearchBudget()
    return all(
        any(conjunction_covers(mine, other, budget) for mine in outer.conjunctions) for other in inner.conjunctions
    )


def equivalent(left: Filter, right: Filter) -> bool:
    """Whether both match the same publications."""
    return left == right or (covers(left, right) and covers(right, left))


def intersects(left: Filter, right: Filter) -> bool:
    """Whether some publication matches both.

    An advertisement gives the least that its publications have. They may carry other attributes, so a subscription to
    such an attribute intersects it.

    >>> intersects(Filter.parse("a > 5"), Filter.parse("a < 9 and b = 1"))
    True
    """
    budget = SearchBudget()
    return any(
        conjunctions_intersect(mine, other, budget) for mine in left.conjunctions for other in right.conjunctions
    )
