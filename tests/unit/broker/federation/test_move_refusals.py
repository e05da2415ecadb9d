"""What is refused while a subscription moves, and what the refusal says."""

from __future__ import annotations

import pytest
from tests.property.federation_network import Network
from tests.unit.broker.federation.test_links import chain, numbers, publication

from lavant.broker.federation.migration.machine import MigrationOutcome
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Receive
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.core.errors import LavantError, SubscriptionMoved, SubscriptionMoving

LEASE_MS = 30_000


def moving(*, in_flight: bool = False) -> Network:
    """`s` has a message at A, which somebody may hold, and begins to move to B."""
    network = chain("A", "B")
    network.request("A", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1)]))
    if in_flight:
        network.request("A", Receive("s", 1))
    move(network, "A", "B")
    return network


def move(network: Network, source: str, target: str) -> list[MigrationOutcome]:
    """Begin to move `s`; the outcome is in the list when there is one."""
    outcomes: list[MigrationOutcome] = []
    node = network.brokers[source].node
    node.machine.migrations.on_ended = outcomes.append
    network.perform(source, node.move("", "s", target, network.now_ms))
    return outcomes


def until_handed_over(network: Network) -> None:
    departures = network.brokers["A"].node.broker.migrations.departures
    while not any(each.is_handed_over for each in departures.values()):
        network.step()


def subscribe_to_queue(network: Network, broker: str) -> None:
    """Let another subscription deliver into the queue of `s`."""
    network.brokers[broker].node.broker.subscriptions.plan(Subscribe("true", "other", queue="s"))


def end(network: Network) -> None:
    network.settle()
    for _ in range(10):
        network.pass_time(LEASE_MS)
        network.settle()


def test_no_other_subscription_may_use_a_queue_that_leaves_or_arrives() -> None:
    network = moving(in_flight=True)
    with pytest.raises(SubscriptionMoving, match="moves to broker 'B'; try again in a moment"):
        subscribe_to_queue(network, "A")
    until_handed_over(network)
    with pytest.raises(SubscriptionMoving, match="arrives from broker 'A'; try again in a moment"):
        subscribe_to_queue(network, "B")
    with pytest.raises(SubscriptionMoved, match="has moved to broker 'B'"):
        subscribe_to_queue(network, "A")
    end(network)
    subscribe_to_queue(network, "B")
    assert numbers(network, "B", "s") == [1]


def test_a_move_back_while_messages_are_in_flight_says_that_it_has_to_wait_for_them() -> None:
    network = moving(in_flight=True)
    network.settle()
    with pytest.raises(
        SubscriptionMoving, match="come from broker 'A', where some of its messages are still in flight"
    ):
        move(network, "B", "A")
    end(network)
    outcomes = move(network, "B", "A")
    end(network)
    assert [each.is_complete for each in outcomes] == [True]
    assert numbers(network, "A", "s") == [1]


def test_a_move_to_a_broker_that_another_subscription_of_that_name_just_left_has_to_wait_too() -> None:
    network = chain("A", "B", "C")
    network.request("A", Subscribe("true", "s"))
    network.request("C", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1)]))
    network.request("A", Receive("s", 1))
    move(network, "A", "B")
    network.settle()
    outcomes = move(network, "C", "A")
    network.settle()
    [outcome] = outcomes
    assert "move it again when they are acknowledged, or their leases have ended" in outcome.reason
    end(network)
    outcomes = move(network, "C", "A")
    end(network)
    assert [each.is_complete for each in outcomes] == [True]


def test_a_move_to_where_the_name_is_taken_says_that_something_has_to_be_deleted() -> None:
    network = chain("A", "B")
    network.request("A", Subscribe("true", "s"))
    network.request("B", CreateQueue("s", QueueConfig()))
    outcomes = move(network, "A", "B")
    network.settle()
    [outcome] = outcomes
    assert "delete that one, or move to another broker" in outcome.reason


def test_a_second_move_of_a_subscription_is_refused() -> None:
    network = moving()
    with pytest.raises(LavantError, match="moves to broker 'B'; try again in a moment"):
        move(network, "A", "B")
    end(network)
    assert numbers(network, "B", "s") == [1]
