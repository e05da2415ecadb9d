"""The filter language of subscriptions and advertisements: syntax, algebra of filters, covering."""

from lavant.broker.filters.algebra.conjunctions import Conjunction
from lavant.broker.filters.covering.cover_forest import CoverForest
from lavant.broker.filters.covering.covering_set import CoveringChange, CoveringSet
from lavant.broker.filters.covering.relation import covers, equivalent, intersects
from lavant.broker.filters.explanation import Explained, explain
from lavant.broker.filters.limits import CANONICAL_LIMITS, FILTER_LIMITS, FilterLimits
from lavant.broker.filters.model import Filter, filter_of, parse

__all__ = [
    "CANONICAL_LIMITS",
    "FILTER_LIMITS",
    "Conjunction",
    "CoverForest",
    "CoveringChange",
    "CoveringSet",
    "Explained",
    "Filter",
    "FilterLimits",
    "covers",
    "equivalent",
    "explain",
    "filter_of",
    "intersects",
    "parse",
]
