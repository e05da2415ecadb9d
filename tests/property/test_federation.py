"""Random federations against one central matcher: every publication reaches what wants it, once, and all tables are
those that are computed from scratch."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.federation_network import Network

from lavant.broker.federation.routes.members import opened_ms
from lavant.broker.federation.routes.router import ANYTHING, LOCAL
from lavant.broker.federation.routes.tables import BUCKETS, KEY_BYTES, RouteTable, differing
from lavant.broker.filters import Filter, covers, intersects
from lavant.broker.protocol.federation import (
    AdvertisedRoute,
    BrokerMember,
    RemoveNeighbour,
    RouteEntry,
    SubscribedRoute,
)
from lavant.broker.protocol.queues import Done, Refused
from lavant.broker.protocol.subscriptions import (
    Advertise,
    Advertised,
    EncryptedFilter,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Unadvertise,
    Unsubscribe,
    UpdateSubscription,
)

BROKERS_MAX = 8
NAMESPACES = ["", "acme"]
FILTERS = [
    *("true", "x > 2", "x > 4", "x < 3", "x >= 2 and x <= 5", "y = 'a'", "y = 'b'", "x > 4 and y = 'a'", "x = 3"),
    *("x > 2 and y = 'a'", "y like 'a%'", "x in (1, 6)", "not exists(y)"),
]


class Wanting(msgspec.Struct):
    broker: str
    namespace: str
    filter: str
    due: Counter[int]
    may: set[int]
    is_settled: bool = False
    former: list[str] = []
    """Filters that it had since everybody knew its filter."""


class Federation:
    """Brokers, and what each of them should deliver."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network()
        self.links: set[frozenset[str]] = set()
        self.down: set[frozenset[str]] = set()
        self.strict: dict[str, bool] = {}
        self.subscriptions: dict[str, Wanting] = {}
        self.advertisements: dict[str, tuple[str, str, str, bool]] = {}
        """Broker, namespace, filter, and whether everybody knows it."""
        self.published = 0
        self.on_way: list[tuple[int, str, dict[str, Any]]] = []
        """Publications that may wait for a link."""
        self.names = 0
        self.refused = 0
        for _ in range(2):
            self.add()

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        steps: list[tuple[int, Any]] = [
            (6, self.subscribe),
            (2, self.update),
            (3, self.unsubscribe),
            (3, self.advertise),
            (2, self.unadvertise),
            (10, self.publish),
            (2, self.add),
            (1, self.leave),
            (2, self.cut),
            (3, self.reconnect),
            (1, self.restart),
            (1, self.close_cycle),
        ]
        self.random.choices([step for _, step in steps], weights=[weight for weight, _ in steps])[0]()
        self.network.settle()
        if not self.down:
            self.everybody_knows()

    def add(self) -> None:
        if len(self.strict) >= BROKERS_MAX:
            return
        name = f"B{len(self.strict) + 1}"
        self.strict[name] = self.random.random() < 0.5
        self.network.add(name, requires_advertisements=self.strict[name], window_publications=3)
        others = [each for each in self.strict if each != name]
        if others:
            self.link(name, self.random.choice(others))

    def link(self, one: str, other: str) -> None:
        dialler, acceptor = self.random.sample([one, other], 2)
        if f"id-{dialler}" in self.network.brokers[acceptor].node.machine.state.removed:
            dialler, acceptor = acceptor, dialler  # only the broker that removed the other can dial it
        self.network.join(dialler, acceptor)
        self.network.settle()
        self.links.add(frozenset((one, other)))
        for each in self.subscriptions.values():  # what is on one side is new to the other
            each.is_settled = False
        self.advertisements = {name: (*each[:3], False) for name, each in self.advertisements.items()}

    def leave(self) -> None:
        """A broker removes a neighbour, and the tree is joined again at some other place."""
        if self.down or not self.links:
            return
        one, other = self.random.sample(sorted(self.random.choice(sorted(self.links, key=sorted))), 2)
        self.network.request(one, RemoveNeighbour(other))
        self.links.remove(frozenset((one, other)))
        here = self.random.choice(sorted(self.component(one)))
        there = self.random.choice(sorted(self.component(other)))
        self.link(here, there)

    def cut(self) -> None:
        up = sorted(self.links - self.down, key=sorted)
        if up:
            link = self.random.choice(up)
            self.network.cut(*sorted(link))
            self.down.add(link)

    def reconnect(self) -> None:
        for link in sorted(self.down, key=sorted):
            self.network.join(*self.random.sample(sorted(link), 2))
            self.network.settle()
        self.down.clear()

    def restart(self) -> None:
        name = self.random.choice(sorted(self.strict))
        self.network.restart(name)
        self.down |= {link for link in self.links if name in link}

    def close_cycle(self) -> None:
        """A join within the tree changes nothing."""
        if len(self.strict) > 2 and not self.down:
            one, other = self.random.sample(sorted(self.strict), 2)
            if frozenset((one, other)) not in self.links:
                before = len(self.network.refusals)
                self.network.join(one, other)
                self.network.settle()
                assert [each.code for each in self.network.refusals[before:]] in (["cycle"], ["removed"])

    def subscribe(self) -> None:
        self.names += 1
        name, broker, namespace = f"s{self.names}", self._broker(), self.random.choice(NAMESPACES)
        filter = self.random.choice(FILTERS)
        answer = self.network.request(broker, Subscribe(filter, name, namespace=namespace))
        assert isinstance(answer, Subscribed)
        late = {
            n for n, where, attributes in self.on_way if where == namespace and Filter.parse(filter).matches(attributes)
        }
        self.subscriptions[name] = Wanting(broker, namespace, filter, Counter(), late)

    def update(self) -> None:
        """What is on its way is decided by the filter that it meets."""
        if not self.subscriptions:
            return
        name, filter = self.random.choice(sorted(self.subscriptions)), self.random.choice(FILTERS)
        each = self.subscriptions[name]
        answer = self.network.request(each.broker, UpdateSubscription(name, filter, each.namespace))
        assert isinstance(answer, Subscribed)
        for number, namespace, attributes in self.on_way:
            is_wanted = Filter.parse(filter).matches(attributes)
            if namespace == each.namespace and not (is_wanted and number in each.due):
                each.may.add(number)
                del each.due[number]
        each.former.append(each.filter)
        each.filter = filter

    def unsubscribe(self) -> None:
        if self.subscriptions:
            name = self.random.choice(sorted(self.subscriptions))
            self.check_deliveries(name)
            gone = self.subscriptions.pop(name)
            assert isinstance(self.network.request(gone.broker, Unsubscribe(name, gone.namespace)), Done)

    def advertise(self) -> None:
        self.names += 1
        name, broker, namespace = f"a{self.names}", self._broker(), self.random.choice(NAMESPACES)
        filter = self.random.choice(FILTERS)
        assert isinstance(self.network.request(broker, Advertise(filter, name, namespace)), Advertised)
        self.advertisements[name] = (broker, namespace, filter, False)

    def unadvertise(self) -> None:
        if self.advertisements:
            name = self.random.choice(sorted(self.advertisements))
            broker, namespace, _, _ = self.advertisements.pop(name)
            assert isinstance(self.network.request(broker, Unadvertise(name, namespace)), Done)

    def publish(self) -> None:
        broker, namespace = self._broker(), self.random.choice(NAMESPACES)
        attributes: dict[str, Any] = {"x": self.random.randint(0, 7)}
        if self.random.random() < 0.7:
            attributes["y"] = self.random.choice(["a", "b", "ab"])
        allowed = [
            each
            for each in self.advertisements.values()
            if each[:2] == (broker, namespace) and Filter.parse(each[2]).matches(attributes)
        ]
        is_refused = self.strict[broker] and not allowed
        is_known = not self.strict[broker] or any(each[3] for each in allowed)
        self.published += 1
        answer = self.network.request(
            broker, Publish([msgspec.json.encode({**attributes, "n": self.published})], namespace=namespace)
        )
        assert isinstance(answer, Published)
        assert isinstance(answer.entries[0], Refused) is is_refused, answer
        if is_refused:
            return
        self.on_way.append((self.published, namespace, attributes))
        for each in self.subscriptions.values():
            if each.namespace != namespace or not Filter.parse(each.filter).matches(attributes):
                continue
            was_wanted = all(Filter.parse(former).matches(attributes) for former in each.former)
            if each.broker == broker or (each.is_settled and is_known and was_wanted):
                each.due[self.published] += 1
            else:
                each.may.add(self.published)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────────

    def everybody_knows(self) -> None:
        self.on_way.clear()
        for each in self.subscriptions.values():
            each.is_settled, each.former = True, []
        self.advertisements = {name: (*each[:3], True) for name, each in self.advertisements.items()}

    def finish(self) -> None:
        self.reconnect()
        self.network.settle()
        self.check_tables()
        for name in self.subscriptions:
            self.check_deliveries(name)

    def check_deliveries(self, name: str) -> None:
        if self.down:
            self.reconnect()
        each = self.subscriptions[name]
        queue = f"{each.namespace}/{name}" if each.namespace else name
        got = Counter(message["n"] for message in self.network.received(each.broker, queue))
        assert max(got.values(), default=1) == 1, f"{name} got something twice: {got}"
        assert each.due - got == Counter(), f"{name} did not get {each.due - got}"
        assert set(got) <= set(each.due) | each.may, f"{name} got what it does not want"
        each.due, each.may = Counter(), set()

    def check_tables(self) -> None:
        for link in self.links:
            for here, there in (sorted(link), sorted(link, reverse=True)):
                machine = self.network.brokers[here].node.machine
                held = machine.state.neighbours[there].routes
                assert sorted(map(repr, held)) == sorted(map(repr, self.told(there, here))), (here, there)
                told = self.network.brokers[there].node.machine.router.outgoing[here]
                assert held.digests() == told.table.digests()
                assert held.digests() == RouteTable(self.told(there, here)).digests()

    def told(self, teller: str, hearer: str) -> list[RouteEntry]:
        """What one broker should hold of its neighbour, from nothing but the clients and the links."""
        side = self.component(teller, without=hearer)
        other = self.component(hearer, without=teller)
        entries: list[RouteEntry] = [self.member(name, path) for name, path in side.items()]
        if any(not self.strict[name] for name in side):
            entries.append(ANYTHING)
        else:
            advertised = [(n, f) for broker, n, f, _ in self.advertisements.values() if broker in side]
            entries += [AdvertisedRoute(namespace, filter) for namespace, filter in largest(advertised)]
        hears_all = any(not self.strict[name] for name in other)
        heard = [(n, Filter.parse(f)) for broker, n, f, _ in self.advertisements.values() if broker in other]
        wanted = [
            (each.namespace, each.filter)
            for each in self.subscriptions.values()
            if each.broker in side
            and (hears_all or any(n == each.namespace and intersects(f, Filter.parse(each.filter)) for n, f in heard))
        ]
        return entries + [SubscribedRoute(namespace, filter) for namespace, filter in largest(wanted)]

    def member(self, name: str, path: list[str]) -> BrokerMember:
        own = self.network.brokers[name].node.machine.own
        brokers = self.network.brokers
        links = [brokers[one].node.machine.state.neighbours[other].link for one, other in pairwise(path)]
        identities = [f"id-{each}" for each in path]
        return msgspec.structs.replace(own, path=identities, opened_ms=list(map(opened_ms, links)))

    def component(self, start: str, without: str = "") -> dict[str, list[str]]:
        """The brokers that can be reached, with the paths from them."""
        found = {start: [start]}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            for link in self.links:
                if name in link:
                    [other] = link - {name}
                    if other != without and other not in found:
                        found[other] = [other, *found[name]]
                        waiting.append(other)
        return found

    def _broker(self) -> str:
        return self.random.choice(sorted(self.strict))


def largest(filters: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The filters that no other one of the namespace covers, in canonical form."""
    parsed = {(namespace, str(Filter.parse(text))): Filter.parse(text) for namespace, text in filters}
    return {
        (namespace, text)
        for (namespace, text), filter in parsed.items()
        if not any(
            n == namespace and covers(other, filter) and not covers(filter, other) for (n, _), other in parsed.items()
        )
    }


def check(seed: int, steps: int = 40) -> None:
    federation = Federation(seed)
    for _ in range(steps):
        federation.step()
        if federation.random.random() < 0.1 and not federation.down:
            federation.check_tables()
    federation.finish()


@given(seed=st.integers(0, 1 << 32))
def test_deliveries_are_those_of_a_central_matcher_and_tables_those_from_scratch(seed: int) -> None:
    check(seed)


@pytest.mark.soak
def test_a_thousand_federations() -> None:
    for seed in range(1_000):
        check(seed, steps=60)


@given(seed=st.integers(0, 1 << 32))
def test_of_joins_that_race_one_stays_no_older_link_is_removed_and_nothing_comes_twice(seed: int) -> None:
    source, network = random.Random(seed), Network()
    sides = [[f"{side}{n}" for n in range(source.randint(1, 3))] for side in "AB"]
    for names in sides:
        for place, name in enumerate(names):
            network.add(name)
            if place:
                network.join(name, source.choice(names[:place]))
                network.settle()
                network.pass_time(1)
    for name, broker in network.brokers.items():
        network.request(name, Subscribe("true", f"s-{name}"))
        broker.node.matching_ms = source.choice([0, 1, 5])  # a copy may come while the first one is matched
    older = network.links()
    pairs = [(one, other) for one in sides[0] for other in sides[1]]
    for pair in source.sample(pairs, min(len(pairs), source.randint(2, 3))):
        network.join(*source.sample(pair, 2))
        for _ in range(source.randint(0, 6)):
            network.step(source)
        network.pass_time(source.randint(0, 2))
    for x in range(8):
        network.ask(source.choice(sorted(network.brokers)), Publish([msgspec.json.encode({"x": x})]))
        for _ in range(source.randint(0, 4)):
            network.step(source)
        network.pass_time(source.randint(0, 1))
    for _ in range(8):
        while network.step(source):
            pass
        network.pass_time(1)
    network.settle()
    for name in network.brokers:
        received = Counter(each["x"] for each in network.received(name, f"s-{name}"))
        assert not received or max(received.values()) == 1, (name, received)
    assert older < network.links()
    assert len(network.links()) == len(older) + 1


@given(seed=st.integers(0, 1 << 32))
def test_digests_find_every_difference(seed: int) -> None:
    source = random.Random(seed)
    entries: list[RouteEntry] = [AdvertisedRoute("", f"x > {n}") for n in range(source.randint(0, 300))]
    one, other = (RouteTable(source.sample(entries, source.randint(0, len(entries)))) for _ in range(2))
    buckets = differing(one.digests(), other.digests())
    expected = [n for n in range(BUCKETS) if sorted(one.keys_in(n)) != sorted(other.keys_in(n))]
    assert buckets == expected
    assert len(one.digests()) == BUCKETS * KEY_BYTES


def test_encrypted_subscriptions_are_told_to_all_and_equal_ones_once() -> None:
    network = Network()
    for name in "ABC":
        network.add(name, requires_advertisements=True)
    network.join("A", "B")
    network.join("B", "C")
    network.settle()
    filter = EncryptedFilter(2, bytes(32))
    machine = network.brokers["A"].node.machine
    machine.router.add(LOCAL, SubscribedRoute("", filter))
    machine.router.add(LOCAL, SubscribedRoute("", filter))
    table = machine.router.outgoing["B"].table
    assert [each for each in table if isinstance(each, SubscribedRoute)] == [SubscribedRoute("", filter)]
    machine.router.remove(LOCAL, SubscribedRoute("", filter))
    assert [each for each in table if isinstance(each, SubscribedRoute)] == [SubscribedRoute("", filter)]
    machine.router.remove(LOCAL, SubscribedRoute("", filter))
    assert [each for each in table if isinstance(each, SubscribedRoute)] == []
