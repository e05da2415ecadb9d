"""The filters that no other one covers, for many filters: of the order among those that are covered, little is kept.

A covered filter knows one other that covers it. That is all that forwarding needs, and adding one is a search among the
roots only; `CoveringSet` keeps the whole order, in which a chain of thousands of filters is walked link by link.

              class = 'STOCK'                    a root: nothing covers it
             /       |        \\
    … symbol = …   … high > …   … volume > …     below it; compared again when it is removed

When a root is removed, those directly below it are compared in pairs, and each that loses goes below the other with all
that is below itself, as in a pairing heap (M. L. Fredman et al., 1986). So a chain of n nested filters, whose roots are
removed one by one, takes about n log n comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lavant.broker.filters.covering.covering_set import CoveringChange, RootIndex
from lavant.broker.filters.covering.poset import FixedValue, Node
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
        self._above: dict[Node, Node] = {}
        """The node directly above a node that is no root, which covers it."""
        self._below: dict[Node, dict[Node, None]] = {}
        """The nodes directly below a node, if any."""

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
        below = self._below.pop(node, {})
        above = self._above.pop(node, None)
        if above is not None:
            del self._below[above][node]
            self._put_below(above, below)
            return CoveringChange()
        if node not in self._roots:
            return CoveringChange()
        self._roots.remove(node)
        for orphan in below:
            del self._above[orphan]
        orphans = self._largest(below)
        demoted = [each for orphan in orphans for each in self._place(orphan) or ()]
        promoted = [orphan for orphan in orphans if orphan in self._roots]
        return CoveringChange(uncovered=_ids(promoted), covered=_ids(each for each in demoted if each not in below))

    def _join(self, node: Node, id: SubscriptionId, filter: Filter) -> None:
        node.members[id] = filter
        self._nodes[id] = node

    def _place(self, node: Node) -> list[Node] | None:
        """Put a node below a root that covers it, or make it a root: then those that it covers go below it.

        Returns these; None if it is no root itself.
        """
        for root in self._roots.may_cover(node):
            if covers(root.filter, node.filter):
                self._put_below(root, [node])
                return None
        demoted = [
            root
            for root in self._roots.may_intersect(node)
            if node.may_cover(root) and covers(node.filter, root.filter)
        ]
        for root in demoted:
            self._roots.remove(root)
        self._put_below(node, demoted)
        self._roots.add(node)
        return demoted

    def _largest(self, nodes: Iterable[Node]) -> list[Node]:
        """Puts nodes that have none above them below each other, and returns the rest: few, if they are nested."""
        alike: dict[frozenset[tuple[str, FixedValue]], list[Node]] = {}
        for node in nodes:
            alike.setdefault(frozenset(node.fixed.items()), []).append(node)
        left = {node for group in alike.values() for node in self._compared(group)}
        return [node for node in nodes if node in left]

    def _compared(self, nodes: list[Node]) -> list[Node]:
        """Compares nodes in pairs, then those that are left."""
        for _ in range(len(nodes).bit_length()):
            nodes = [
                node for place in range(0, len(nodes), 2) for node in self._compared_pair(*nodes[place : place + 2])
            ]
        return nodes

    def _compared_pair(self, first: Node, second: Node | None = None) -> Iterator[Node]:
        if second is None:
            yield first
        elif covers(first.filter, second.filter):
            self._put_below(first, [second])
            yield first
        elif covers(second.filter, first.filter):
            self._put_below(second, [first])
            yield second
        else:
            yield from (first, second)

    def _put_below(self, above: Node, nodes: Iterable[Node]) -> None:
        below = self._below.setdefault(above, {})
        for node in nodes:
            self._above[node] = above
            below[node] = None


def _ids(nodes: Iterable[Node]) -> tuple[SubscriptionId, ...]:
    return tuple(sorted(node.id for node in nodes))
