"""The language in which subscribers say what they want."""

from lavant.broker.filters.conjunctions import Conjunction
from lavant.broker.filters.covering import covers, equivalent, intersects
from lavant.broker.filters.covering_set import Change, CoveringSet
from lavant.broker.filters.explain import Explained, explain
from lavant.broker.filters.limits import CANONICAL_LIMITS, FILTER_LIMITS, FilterLimits
from lavant.broker.filters.model import Filter, parse

__all__ = [
    "CANONICAL_LIMITS",
    "FILTER_LIMITS",
    "Change",
    "Conjunction",
    "CoveringSet",
    "Explained",
    "Filter",
    "FilterLimits",
    "covers",
    "equivalent",
    "explain",
    "intersects",
    "parse",
]
