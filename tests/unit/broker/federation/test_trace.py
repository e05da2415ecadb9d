"""What operators see: where a publication would go and why, the state of links, and the brokers behind them."""

from __future__ import annotations

import pytest
from tests.unit.broker.federation.test_links import chain, publication

from lavant.broker.federation.trace import links_of, members_of, tracer
from lavant.broker.protocol.subscriptions import Advertise, Publish, Subscribe
from lavant.core.errors import InvalidValue


def test_each_broker_says_which_subscription_is_why() -> None:
    network = chain("A", "B", "C")
    network.request("C", Subscribe("x > 1", "wanted"))
    machines = {name: broker.node.machine for name, broker in network.brokers.items()}
    verdicts = {name: tracer(machine, "", publication(x=2))() for name, machine in machines.items()}
    assert verdicts["C"].subscriptions == ["wanted"]
    assert [(step.neighbour, step.is_forwarded) for step in verdicts["B"].links] == [("A", False), ("C", True)]
    assert "x > 1" in verdicts["A"].links[0].reason
    assert (
        "the only subscription behind it does not match"
        in tracer(machines["A"], "", publication(x=1))().links[0].reason
    )
    assert "no subscription behind it" in tracer(machines["A"], "shop", publication(x=2))().links[0].reason
    assert tracer(machines["B"], "", publication(x=2), source="C")().links == verdicts["B"].links[:1]


def test_a_missing_advertisement_is_named_where_it_is_missing() -> None:
    network = chain("A", "B", requires_advertisements=True)
    network.request("B", Subscribe("x > 1", "wanted"))
    machine = network.brokers["A"].node.machine
    here = tracer(machine, "", publication(x=2))()
    assert here.refusal is not None
    assert "no advertisement here matches" in here.refusal
    [step] = tracer(machine, "", publication(x=2), source="C")().links
    assert (step.is_forwarded, "no advertisement on this side" in step.reason) == (False, True)
    network.request("A", Advertise("x > 0 and x < 9", "a"))
    [step] = tracer(machine, "", publication(x=2))().links
    assert step.is_forwarded
    assert tracer(machine, "", publication(x=9))().refusal is not None
    [step] = tracer(machine, "", publication(x=1))().links
    assert step.reason == "the only subscription behind it does not match"


def test_a_trace_is_of_the_moment_it_was_asked_for() -> None:
    network = chain("A", "B")
    asked = tracer(network.brokers["A"].node.machine, "", publication(x=2))
    network.request("A", Subscribe("x > 1", "later"))
    assert asked().subscriptions == []


@pytest.mark.parametrize("given", [b"[]", b'{"@point": [1.0, 2.0]}', b'{"x": []}'])
def test_what_cannot_be_traced_is_refused(given: bytes) -> None:
    network = chain("A", "B")
    with pytest.raises(InvalidValue):
        tracer(network.brokers["A"].node.machine, "", given)


def test_links_and_brokers_are_shown_as_they_are() -> None:
    network = chain("A", "B", "C")
    network.request("C", Subscribe("x > 1", "s"))
    network.request("C", Subscribe("x > 2", "t"))
    network.request("A", Publish([publication(x=2), publication(x=3)]))
    machine = network.brokers["B"].node.machine
    shown = {link.name: link for link in links_of(machine)}
    assert (shown["A"].state, shown["A"].received, shown["A"].forwarded) == ("up", 2, 0)
    assert (shown["C"].state, shown["C"].forwarded, shown["C"].subscriptions, shown["C"].waiting) == ("up", 2, 1, 0)
    assert {link.name: link.covered for link in links_of(network.brokers["C"].node.machine)} == {"B": 1}
    assert sorted(member.name for member in members_of(machine)) == ["A", "C"]
    network.cut("B", "C")
    network.settle()
    assert {link.name: link.state for link in links_of(machine)} == {"A": "up", "C": "down"}
