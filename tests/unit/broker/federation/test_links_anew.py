"""Links that begin anew: after one side removed the other, or came back with older data."""

from __future__ import annotations

import pytest
from tests.property.federation_network import Network
from tests.unit.broker.federation.test_links import chain, numbers, publication

from lavant.broker.federation.state import NUMBERS_A_MS
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.federation import AddNeighbour, RemoveNeighbour
from lavant.broker.protocol.queues import FanOut, Open
from lavant.broker.protocol.subscriptions import Deliver, Publish, RoutedPublications, Subscribe
from lavant.broker.queues.compatibility import NUMBERS_RISE_WITH_LINKS, RULES


def test_a_second_join_to_the_same_broker_leaves_the_link_alone() -> None:
    network = chain("A", "B")
    before = [list(each.node.machine.sessions) for each in network.brokers.values()]
    for _ in range(3):
        network.join("A", "B")
        network.settle()
    assert [list(each.node.machine.sessions) for each in network.brokers.values()] == before
    assert {each.code for each in network.refusals} == {"twice"}
    network.request("B", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1)]))
    assert numbers(network, "B", "s") == [1]


def test_an_older_connection_that_only_the_acceptor_believes_in_is_replaced() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    node = network.brokers["A"].node
    [connection] = node.machine.sessions
    network.perform("A", node.closed(connection, network.now_ms))  # B has not noticed
    network.request("A", Publish([publication(x=1)]))
    for _ in range(2):  # the first attempt finds the older one
        network.join("A", "B")
        network.settle()
    assert [each.code for each in network.refusals if each.reason.startswith("'B' had")] == ["linked"]
    assert numbers(network, "B", "s") == [1]


def test_numbers_of_a_link_that_ended_do_not_count_for_the_next_one() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    network.cut("A", "B")
    network.settle()
    network.request("B", RemoveNeighbour("A", is_final=False))
    network.brokers["A"].is_disk_stopped = True
    network.ask("A", Publish([publication(x=x) for x in range(5)]))
    network.join("A", "B")
    for _ in range(3):
        network.step()
    network.resume_disk("A")
    assert [*network.brokers["A"].node.machine.sendable.values()] == [0], "the new link begins with nothing"
    network.settle()
    network.request("A", Publish([publication(x=9)]))
    assert numbers(network, "B", "s") == [9]


def test_of_links_that_ended_nothing_is_remembered() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    relays = network.brokers["B"].node.machine.relays
    for x in range(3):
        network.request("A", Publish([publication(x=x)]))
        assert relays.hops_max == {"A": 1}
        network.request("A", RemoveNeighbour("B"))
        assert (relays.hops_max, relays._in_progress) == ({}, {})
        network.join("A", "B")
        network.settle()
    assert numbers(network, "B", "s") == [0, 1, 2]


def test_a_neighbour_that_was_removed_while_it_was_away_forgets_the_one_that_removed_it() -> None:
    network = chain("A", "B")
    network.request("A", Subscribe("true", "s"))
    network.cut("A", "B")
    network.settle()
    network.request("B", Publish([publication(x=1)]))
    network.request("A", RemoveNeighbour("B"))
    network.join("B", "A")
    network.settle()
    assert [each.code for each in network.refusals] == ["removed"]
    assert network.brokers["B"].node.machine.state.neighbours == {}
    assert any("that waited for it and were deleted: 1" in each for each in network.notices), network.notices


def older_copy_at_a() -> Network:
    """B has five publications of A, which was restored to a copy from before."""
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    broker = network.brokers["A"]
    old = len(broker.records)
    for x in range(5):
        network.request("A", Publish([publication(x=x)]))
    del broker.records[old:]
    broker.durable = old
    network.pass_time(1)
    network.restart("A")
    return network


def test_a_broker_with_an_older_copy_of_its_data_joins_again_and_nothing_new_counts_as_a_copy() -> None:
    network = older_copy_at_a()
    network.request("A", RemoveNeighbour("B"))
    network.join("A", "B")
    network.settle()
    for x in range(5, 10):
        network.request("A", Publish([publication(x=x)]))
    assert numbers(network, "B", "s") == list(range(10))


def test_a_data_directory_that_is_older_than_what_was_confirmed_is_refused() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1)]))
    old = len(network.brokers["B"].records)
    for x in (2, 3):
        network.request("A", Publish([publication(x=x)]))
    network.cut("A", "B")
    network.settle()
    del network.brokers["B"].records[old:]
    network.brokers["B"].durable = old
    network.restart("B")
    network.join("B", "A")
    network.settle()
    assert [each.code for each in network.refusals] == ["invalid"]
    assert "older copy" in network.refusals[0].reason


def test_an_older_copy_that_publishes_before_its_link_opens_is_refused_too() -> None:
    """Its new publications have numbers that the neighbour has received already."""
    network = older_copy_at_a()
    for x in range(5, 15):
        network.request("A", Publish([publication(x=x)]))
    network.join("A", "B")
    network.settle()
    assert [each.code for each in network.refusals] == ["invalid"]
    assert "older copy" in network.refusals[0].reason
    assert len(network.brokers["A"].node.machine.state.neighbours["B"].queue) == 10


@pytest.mark.parametrize(("rules", "first"), [(NUMBERS_RISE_WITH_LINKS - 1, 1), (RULES, 5_000 * NUMBERS_A_MS + 1)])
def test_a_journal_keeps_the_numbers_that_its_rules_gave(rules: int, first: int) -> None:
    broker = BrokerState()
    broker.handle(Open(1, rules), 0)
    broker.handle(AddNeighbour("B", "identity-of-b", "link"), 5_000)
    broker.handle(Deliver(FanOut([publication(x=1)], b"", b"", b""), routed=RoutedPublications("")), 6_000)
    assert broker.federation.published == first
