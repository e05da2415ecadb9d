"""The filters that no other one covers, for many filters: the order among those that are covered is not kept.

A covered filter knows one root that covers it. That is all that forwarding needs, and adding one is a search among the
roots only; `CoveringSet` keeps the whole order, in which a chain of thousands of filters is walked link by link.

              class = 'STOCK'                    a root: nothing covers it
             /       |        \\
    … symbol = …   … high > …   … volume > …     covered by it; compared again when it is removed
"""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.filters.covering.covering_set import CoveringChange, RootIndex
from lavant.broker.filters.covering.poset import Node
from lavant.broker.filters.covering.relation import covers
from lavant.broker.filters.model import Filter
from lavant.core.ids import SubscriptionId


class CoverForest:
    """
    >>> forest = CoverForest()
    >>> forest.add(SubscriptionId(1), Filter.parse("class = 'STOCK' and volume > 1000"))
    CoveringChange(uncovered=(1,), covered=())
    >>> forest.add(SubscriptionId(2), Filter.parse("class = 'STOCK'"))
    CoveringChange(uncovered=(2,), covered=(1,))
    >>> forest.remove(SubscriptionId(2))
    CoveringChange(uncovered=(1,), covered=())
    """

    def __init__(self) -> None:
        self._nodes: dict[SubscriptionId, Node] = {}
        self._by_filter: dict[Filter, Node] = {}
        self._roots = RootIndex()
        self._cover: dict[Node, Node] = {}
        """The root that covers a node."""
        self._covered: dict[Node, dict[Node, None]] = {}
        """The nodes that a root covers, if any."""

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def covered(self) -> int:
        """How many ids need not be told: another one covers them, or is equivalent."""
        return len(self._nodes) - len(self._roots)

    def roots(self) -> tuple[SubscriptionId, ...]:
        """The ids that nothing covers, one for each class of equivalent filters; sorted."""
        return tuple(sorted(node.id for node in self._roots))

    def is_root(self, id: SubscriptionId) -> bool:
        node = self._nodes[id]
        return node.id == id and node in self._roots

    def add(self, id: SubscriptionId, filter: Filter) -> CoveringChange:
        node = self._by_filter.get(filter)
        if node is not None:
            self._join(node, id, filter)
            return CoveringChange()
        node = Node(filter)
        self._join(node, id, filter)
        self._by_filter[filter] = node
        if not filter.conjunctions:  # it matches nothing, so nobody need know of it
            return CoveringChange()
        demoted = self._place(node)
        if demoted is None:
            return CoveringChange()
        return CoveringChange(uncovered=(id,), covered=_ids(demoted))

    def remove(self, id: SubscriptionId) -> CoveringChange:
        node = self._nodes.pop(id)
        was_first = node.id == id
        del node.members[id]
        if node.members:
            is_told = was_first and node in self._roots
            return CoveringChange(uncovered=(node.id,)) if is_told else CoveringChange()
        del self._by_filter[node.filter]
        root = self._cover.pop(node, None)
        if root is not None:
            del self._covered[root][node]
            return CoveringChange()
        if node not in self._roots:
            return CoveringChange()
        self._roots.remove(node)
        orphans = self._covered.pop(node, {})
        for orphan in orphans:
            del self._cover[orphan]
        demoted = [each for orphan in orphans for each in self._place(orphan) or ()]
        promoted = [orphan for orphan in orphans if orphan in self._roots]
        return CoveringChange(uncovered=_ids(promoted), covered=_ids(each for each in demoted if each not in orphans))

    def _join(self, node: Node, id: SubscriptionId, filter: Filter) -> None:
        node.members[id] = filter
        self._nodes[id] = node

    def _place(self, node: Node) -> list[Node] | None:
        """Put a node below a root that covers it, or make it a root: then those that it covers go below it.

        Returns these; None if it is no root itself.
        """
        for root in self._roots.may_cover(node):
            if root.may_cover(node) and covers(root.filter, node.filter):
                self._put_below(root, [node])
                return None
        demoted = [
            root
            for root in self._roots.may_intersect(node)
            if node.may_cover(root) and covers(node.filter, root.filter)
        ]
        for root in demoted:
            self._roots.remove(root)
            self._put_below(node, [root, *self._covered.pop(root, ())])
        self._roots.add(node)
        return demoted

    def _put_below(self, root: Node, nodes: Iterable[Node]) -> None:
        covered = self._covered.setdefault(root, {})
        for node in nodes:
            self._cover[node] = root
            covered[node] = None


def _ids(nodes: Iterable[Node]) -> tuple[SubscriptionId, ...]:
    return tuple(sorted(node.id for node in nodes))
