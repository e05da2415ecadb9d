"""Subscriptions ordered by covering: which must be forwarded, and what changes when one is added or removed.

A partially ordered set, kept as the graph of its immediate coverings. A node is a class of equivalent filters; its
parents cover it, its children are covered by it, and no node lies in between:

                     (imaginary root)
                    /                \\
             class = 'STOCK'     class = 'SPORTS'            <- the covering subscription set (CSS)
              /           \\              |
    ... and symbol =   ... and      ... and type =
        'YHOO'       volume > 1000     'RACING'

Of equivalent subscriptions the one added first stands for all, so that a later one, whatever its id, causes no traffic.
A filter that matches nothing is never in the CSS: nothing need be forwarded for it.

Adding walks down from those roots that may cover the new filter (`root_index` leaves out most), along coverings only;
then down again through what overlaps it, for what it covers.

After A. K. Y. Cheung, Dynamic Load Balancing in Distributed Content-based Publish/Subscribe, section 2.1.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from lavant.broker.filters.covering.poset import FixedValue, Node, ancestors
from lavant.broker.filters.covering.relation import covers, intersects
from lavant.broker.filters.model import Filter
from lavant.core.errors import DuplicateSubscription, UnknownSubscription
from lavant.core.ids import SubscriptionId


class RootIndex:
    def __init__(self) -> None:
        self._filed: dict[str, dict[FixedValue, dict[Node, None]]] = {}
        self._unfiled: dict[Node, None] = {}
        self._places: dict[Node, tuple[str, FixedValue] | None] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._places)

    def __contains__(self, node: Node) -> bool:
        return node in self._places

    def add(self, node: Node) -> None:
        place = min(node.fixed.items(), key=self._crowd, default=None)
        self._places[node] = place
        if place is None:
            self._unfiled[node] = None
        else:
            name, value = place
            self._filed.setdefault(name, {}).setdefault(value, {})[node] = None

    def remove(self, node: Node) -> None:
        place = self._places.pop(node)
        if place is None:
            del self._unfiled[node]
            return
        name, value = place
        del self._filed[name][value][node]
        if not self._filed[name][value]:
            del self._filed[name][value]
        if not self._filed[name]:
            del self._filed[name]

    def may_cover(self, node: Node) -> Iterator[Node]:
        """A superset of the roots that cover it."""
        yield from self._unfiled
        groups = [self._filed.get(name, {}).get(value, {}) for name, value in node.fixed.items()]
        groups += [roots for name in node.vague for roots in self._filed.get(name, {}).values()]
        for roots in groups:
            for root in roots:
                if root.may_cover(node):
                    yield root

    def may_intersect(self, node: Node) -> Iterator[Node]:
        """A superset of the roots that intersect it."""
        yield from self._unfiled
        for name, by_value in self._filed.items():
            value = node.fixed.get(name)
            if value is not None:
                yield from by_value.get(value, ())
            else:
                for roots in by_value.values():
                    yield from roots

    def _crowd(self, item: tuple[str, FixedValue]) -> tuple[int, str]:
        name, value = item
        return len(self._filed.get(name, {}).get(value, ())), name


class CoveringChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the CSS changed, apart from the removed subscription itself. Both are sorted."""

    uncovered: tuple[SubscriptionId, ...] = ()
    """Joined the CSS and must be forwarded now, including a new subscription that nothing covers."""
    covered: tuple[SubscriptionId, ...] = ()
    """Left the CSS because the new one covers them; no longer to be forwarded."""


class CoveringSet:
    """
    >>> subscriptions = CoveringSet()
    >>> subscriptions.add(SubscriptionId(1), Filter.parse("class = 'STOCK' and volume > 1000"))
    CoveringChange(uncovered=(1,), covered=())
    >>> subscriptions.add(SubscriptionId(2), Filter.parse("class = 'STOCK'"))
    CoveringChange(uncovered=(2,), covered=(1,))
    >>> subscriptions.remove(SubscriptionId(2))
    CoveringChange(uncovered=(1,), covered=())
    """

    def __init__(self) -> None:
        self._nodes: dict[SubscriptionId, Node] = {}
        self._by_filter: dict[Filter, Node] = {}
        self._roots = RootIndex()

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, id: SubscriptionId) -> bool:
        return id in self._nodes

    def __iter__(self) -> Iterator[SubscriptionId]:
        """The ids of the covering subscription set, sorted."""
        return iter(self.roots())

    def roots(self) -> tuple[SubscriptionId, ...]:
        """The ids of the covering subscription set, sorted."""
        return _ids(self._roots)

    def is_root(self, id: SubscriptionId) -> bool:
        node = self._find(id)
        return node.id == id and node in self._roots

    def filter(self, id: SubscriptionId) -> Filter:
        """The filter that was added under this id."""
        return self._find(id).members[id]

    def children(self, id: SubscriptionId) -> tuple[SubscriptionId, ...]:
        """The ids that this one covers with none in between, one per class of equivalent ones; sorted."""
        return _ids(self._find(id).children)

    def equivalents(self, id: SubscriptionId) -> tuple[SubscriptionId, ...]:
        """The ids with equivalent filters, including this one, in the order they were added."""
        return tuple(self._find(id).members)

    def add(self, id: SubscriptionId, filter: Filter) -> CoveringChange:
        if id in self._nodes:
            raise DuplicateSubscription(f"subscription {id} is in the set already; remove it first")
        known = self._by_filter.get(filter)
        if known is not None:
            return self._join(known, id, filter)
        node = Node(filter)
        if not filter.conjunctions:
            self._by_filter[filter] = node
            return self._join(node, id, filter)
        parents = self._closest_covering(node)
        for parent in parents:
            if covers(filter, parent.filter):
                return self._join(parent, id, filter)
        children = self._largest_covered(node, parents)
        self._join(node, id, filter)
        self._by_filter[filter] = node
        return self._link(node, parents, children)

    def remove(self, id: SubscriptionId) -> CoveringChange:
        node = self._find(id)
        was_first = node.id == id
        del self._nodes[id]
        del node.members[id]
        if not node.members:
            del self._by_filter[node.filter]
            return self._unlink(node)
        if was_first and node in self._roots:
            return CoveringChange(uncovered=(node.id,))
        return CoveringChange()

    def _find(self, id: SubscriptionId) -> Node:
        node = self._nodes.get(id)
        if node is None:
            raise UnknownSubscription(f"subscription {id} is not in the set")
        return node

    def _join(self, node: Node, id: SubscriptionId, filter: Filter) -> CoveringChange:
        node.members[id] = filter
        self._nodes[id] = node
        return CoveringChange()

    def _closest_covering(self, node: Node) -> list[Node]:
        """The nodes that cover it and have no child that does."""
        closest: list[Node] = []
        seen: set[Node] = set()
        waiting = [root for root in self._roots.may_cover(node) if covers(root.filter, node.filter)]
        seen.update(waiting)
        while waiting:
            covering = waiting.pop()
            below = [
                child for child in covering.children if child.may_cover(node) and covers(child.filter, node.filter)
            ]
            if not below:
                closest.append(covering)
            waiting += [child for child in below if child not in seen]
            seen.update(below)
        return sorted(closest, key=Node.order)

    def _largest_covered(self, node: Node, parents: list[Node]) -> list[Node]:
        """The nodes that it covers and that have no ancestor that it covers.

        Its parents cover whatever it covers, so with a parent only nodes below that one are examined.
        """
        if parents:
            waiting = list(min(parents, key=lambda parent: len(parent.children)).children)
        else:
            waiting = list(self._roots.may_intersect(node))
        above = ancestors(parents)
        above.update(parents)
        seen = set(waiting)
        covered: set[Node] = set()
        while waiting:
            candidate = waiting.pop()
            if candidate in above or not candidate.may_intersect(node):
                continue
            if covers(node.filter, candidate.filter):
                covered.add(candidate)
            elif candidate.children and intersects(node.filter, candidate.filter):
                waiting += [child for child in candidate.children if child not in seen]
                seen.update(candidate.children)
        return sorted((c for c in covered if covered.isdisjoint(ancestors([c]))), key=Node.order)

    def _link(self, node: Node, parents: list[Node], children: list[Node]) -> CoveringChange:
        for child in children:
            for parent in parents:
                parent.children.pop(child, None)
                child.parents.pop(parent, None)
            node.children[child] = None
            child.parents[node] = None
        for parent in parents:
            parent.children[node] = None
            node.parents[parent] = None
        if parents:
            return CoveringChange()
        demoted = [child for child in children if child in self._roots]
        for child in demoted:
            self._roots.remove(child)
        self._roots.add(node)
        return CoveringChange(uncovered=(node.id,), covered=_ids(demoted))

    def _unlink(self, node: Node) -> CoveringChange:
        for parent in node.parents:
            del parent.children[node]
        promoted: list[Node] = []
        for child in node.children:
            del child.parents[node]
            reachable = ancestors([child])
            for parent in node.parents:
                if parent not in reachable:
                    parent.children[child] = None
                    child.parents[parent] = None
            if not child.parents:
                self._roots.add(child)
                promoted.append(child)
        if node in self._roots:
            self._roots.remove(node)
        return CoveringChange(uncovered=_ids(promoted))


def _ids(nodes: Iterable[Node]) -> tuple[SubscriptionId, ...]:
    return tuple(sorted(node.id for node in nodes))
