"""Filters by the values that they fix, so that one of many others need not be compared with each of them.

A neighbour's advertisements are looked up for each subscription, and all subscriptions for each advertisement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from lavant.broker.filters import Filter
from lavant.broker.filters.covering.covering_set import RootIndex
from lavant.broker.filters.covering.poset import Node

Key = TypeVar("Key", bound=Hashable)


class FilterIndex(Generic[Key]):
    """
    >>> index = FilterIndex[int]()
    >>> index.add(1, Filter.parse("symbol = 'IBM'"))
    >>> index.add(2, Filter.parse("symbol = 'SAP'"))
    >>> index.add(3, Filter.parse("price > 100"))
    >>> sorted(index.may_intersect(Filter.parse("symbol = 'IBM' and price < 50")))
    [1, 3]
    """

    def __init__(self) -> None:
        self._nodes: dict[Key, Node] = {}
        self._keys: dict[Node, Key] = {}
        self._index = RootIndex()

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, key: Key, filter: Filter) -> None:
        node = self._nodes[key] = Node(filter)
        self._keys[node] = key
        self._index.add(node)

    def remove(self, key: Key) -> None:
        node = self._nodes.pop(key)
        del self._keys[node]
        self._index.remove(node)

    def may_intersect(self, filter: Filter) -> Iterator[Key]:
        """A superset of the keys whose filters intersect it: those that fix no other value than it does."""
        if self._nodes:
            for node in self._index.may_intersect(Node(filter)):
                yield self._keys[node]
