"""The central oracle of a simulated federation: which subscription is due which publication.

A publication is due if its subscription was *established* before it was published: once, every broker on the path from
the publisher knew of it, durably. From then on it stays established, whatever crashes, until it is unsubscribed or the
path changes. Everything else that matches may come, or not. Nothing comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from lavant.broker.filters import Filter, covers
from lavant.broker.protocol.federation import SubscribedRoute
from lavant.broker.protocol.queues import Peek, Peeked
from lavant.simulation.federation.node import BrokerNode


class OracleSubscription(msgspec.Struct):
    name: str
    broker: str
    filter: Filter
    established: set[str] = msgspec.field(default_factory=set)
    """Brokers from which its publications are due."""
    due: set[int] = msgspec.field(default_factory=set)
    may: set[int] = msgspec.field(default_factory=set)


class FederationOracle:
    """All subscriptions, and what is due to them."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, OracleSubscription] = {}
        self.links: set[frozenset[str]] = set()
        self._published: dict[int, tuple[str, dict[str, int], list[str]]] = {}
        """By number: the broker, the attributes, and the subscriptions it was due to when it was asked for."""
        self._past: list[tuple[int, dict[str, int]]] = []

    def subscribed(self, name: str, broker: str, filter: str) -> None:
        wanted = Filter.parse(filter)
        may = {number for number, attributes in self._past if wanted.matches(attributes)}
        self.subscriptions[name] = OracleSubscription(name, broker, wanted, may=may)

    def unsubscribed(self, name: str) -> None:
        del self.subscriptions[name]

    def publishes(self, number: int, broker: str, attributes: dict[str, int]) -> None:
        """A client is about to publish."""
        due = []
        for each in self.subscriptions.values():
            if each.filter.matches(attributes):
                each.may.add(number)
                if each.broker == broker or broker in each.established:
                    due.append(each.name)
        self._published[number] = broker, attributes, due
        self._past.append((number, attributes))

    def accepted(self, number: int) -> None:
        """The client was told that it is published."""
        published = self._published.pop(number, None)
        for name in () if published is None else published[2]:
            if name in self.subscriptions:
                self.subscriptions[name].due.add(number)

    def topology_changed(self, nodes: Mapping[str, BrokerNode | None]) -> None:
        """Paths are different now, and what was on its way over a removed link is deleted with it."""
        for each in self.subscriptions.values():
            each.established.clear()
            node = nodes[each.broker]
            arrived = set(delivered(node, each.name)) if node is not None else set()
            each.due &= arrived
        self._published = {number: (broker, row, []) for number, (broker, row, _) in self._published.items()}

    def observe(self, nodes: Mapping[str, BrokerNode | None]) -> None:
        """Find out which subscriptions are established by now."""
        for each in self.subscriptions.values():
            self._observe(each, nodes)

    def _observe(self, wanted: OracleSubscription, nodes: Mapping[str, BrokerNode | None]) -> None:
        """Walk away from the subscriber, as long as the next broker knows of the subscription."""
        waiting, seen = [wanted.broker], {wanted.broker}
        while waiting:
            near = waiting.pop()
            for link in self.links:
                [*others] = link - {near}
                if near not in link or others[0] in seen:
                    continue
                far = others[0]
                seen.add(far)
                if far in wanted.established or _knows(nodes[far], nodes[near], far, near, wanted.filter):
                    wanted.established.add(far)
                    waiting.append(far)

    def verdict(self, nodes: Mapping[str, BrokerNode]) -> str | None:
        """What is wrong, when everything has come to rest."""
        for each in self.subscriptions.values():
            got = Counter(delivered(nodes[each.broker], each.name))
            twice = sorted(number for number, times in got.items() if times > 1)
            if twice:
                return f"{each.name} at {each.broker} got publication {twice[0]} twice"
            missing = sorted(each.due - set(got))
            if missing:
                return f"{each.name} at {each.broker} did not get publications {missing[:5]}, which were due"
            wrong = sorted(set(got) - each.may)
            if wrong:
                return f"{each.name} at {each.broker} got publication {wrong[0]}, which it does not want"
        return None


def largest(filters: Iterable[object]) -> set[str]:
    """The plain filters that no other one covers, in canonical form."""
    parsed = {str(filter): filter for filter in (Filter.parse(text) for text in filters if isinstance(text, str))}
    return {
        text
        for text, filter in parsed.items()
        if not any(covers(other, filter) and not covers(filter, other) for other in parsed.values())
    }


def _knows(node: BrokerNode | None, told_by: BrokerNode | None, far: str, near: str, filter: Filter) -> bool:
    """Whether broker `far` sends to `near` what the filter wants. A route that `near` has withdrawn does not count,
    even if `far` has not heard of it: it was another subscription's, and ends before this one's arrives.
    """
    if node is None or node.durable < node.position or near not in node.broker.federation.neighbours:
        return False
    if told_by is None or far not in told_by.machine.router.outgoing:
        return False
    still_told = told_by.machine.router.outgoing[far].table
    routes = node.broker.federation.neighbours[near].routes.items()
    texts = (entry.filter for key, entry in routes if isinstance(entry, SubscribedRoute) and key in still_told)
    return any(isinstance(text, str) and covers(Filter.parse(text), filter) for text in texts)


def delivered(node: BrokerNode, queue: str) -> Iterable[int]:
    """The numbers of the publications in a queue."""
    if not node.queues.exists(queue):
        return
    after = 0
    while True:
        answer = node.broker.answer(Peek(queue, 10, after))
        assert isinstance(answer, Peeked)
        if not answer.messages:
            return
        for message in answer.messages:
            after = message.number
            yield msgspec.json.decode(message.body)["n"]
