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
from lavant.broker.filters.model import Filter, filter_of


def covers(outer: Filter | str, inner: Filter | str) -> bool:
    """Whether every publication that matches `inner` matches `outer`, filters or their texts.

    >>> covers("volume > 1000", "volume > 2000 and class = 'STOCK'")
    True
    """
    budget, wide, narrow = SearchBudget(), filter_of(outer), filter_of(inner)
    return all(
        any(conjunction_covers(mine, other, budget) for mine in wide.conjunctions) for other in narrow.conjunctions
    )


def equivalent(left: Filter, right: Filter) -> bool:
    """Whether both match the same publications."""
    return left == right or (covers(left, right) and covers(right, left))


def intersects(left: Filter | str, right: Filter | str) -> bool:
    """Whether some publication matches both, filters or their texts.

    An advertisement gives the least that its publications have. They may carry other attributes, so a subscription to
    such an attribute intersects it.

    >>> intersects("a > 5", "a < 9 and b = 1")
    True
    """
    budget, one, another = SearchBudget(), filter_of(left), filter_of(right)
    return any(
        conjunctions_intersect(mine, other, budget) for mine in one.conjunctions for other in another.conjunctions
    )
