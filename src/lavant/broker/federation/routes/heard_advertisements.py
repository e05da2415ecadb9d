"""The advertisements of one neighbour in one namespace, by the values that they fix.

With many advertisements, a subscription is compared with those only that fix no other value than it does.
"""

from __future__ import annotations

from lavant.broker.filters import Filter, intersects
from lavant.broker.filters.covering.covering_set import RootIndex
from lavant.broker.filters.covering.poset import Node


class HeardAdvertisements:
    """
    >>> heard = HeardAdvertisements()
    >>> heard.add(Filter.parse("symbol = 'IBM'"))
    >>> [heard.intersect(Filter.parse(f"symbol = '{name}' and price > 100")) for name in ("IBM", "SAP")]
    [True, False]
    """

    def __init__(self) -> None:
        self._nodes: dict[Filter, Node] = {}
        self._index = RootIndex()

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, filter: Filter) -> None:
        node = self._nodes[filter] = Node(filter)
        self._index.add(node)

    def remove(self, filter: Filter) -> None:
        self._index.remove(self._nodes.pop(filter))

    def intersect(self, filter: Filter) -> bool:
        """Whether one of them intersects this subscription."""
        if not self._nodes:
            return False
        return any(intersects(each.filter, filter) for each in self._index.may_intersect(Node(filter)))
