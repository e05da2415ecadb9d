"""The roots of the covering graph, found by a value that they fix.

A root that fixes `symbol = 'YHOO'` can only cover filters that fix the same, and can only overlap filters that do not
fix another symbol. So each root is filed under one of the values it fixes, the one with the fewest roots so far; roots
that fix nothing are looked at always.
"""

from __future__ import annotations

from collections.abc import Iterator

from lavant.broker.filters.poset_node import FixedValue, Node


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
        """Roots that may cover it: no others do."""
        yield from self._unfiled
        groups = [self._filed.get(name, {}).get(value, {}) for name, value in node.fixed.items()]
        groups += [roots for name in node.vague for roots in self._filed.get(name, {}).values()]
        for roots in groups:
            for root in roots:
                if root.may_cover(node):
                    yield root

    def may_meet(self, node: Node) -> Iterator[Node]:
        """Roots that may have something in common with it: no others do."""
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
