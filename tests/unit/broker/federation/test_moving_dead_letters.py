"""Dead letters follow their subscription to another broker, each once, also over crashes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.property.federation_network import Network

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import ChangeVisibility, CreateQueue, Receive, VisibilityChange
from lavant.broker.protocol.subscriptions import Publish, Subscribe

VISIBLE_MS = 1_000
CONFIG = QueueConfig(visibility_ms=VISIBLE_MS, dead_letters="dead", receives_max=1)


def network() -> Network:
    """Two brokers; `s` and `other` have two dead letters each at B1, in one queue, and `s` a message that waits."""
    found = Network()
    for name in ("B1", "B2"):
        found.add(name)
    found.join("B2", "B1")
    found.settle()
    found.request("B1", CreateQueue("dead", QueueConfig()))
    for name in ("s", "other"):
        found.request("B1", Subscribe("x > 0", name, config=CONFIG))
    for x in (1, 2):
        publish(found, x)
    for name in ("s", "other"):
        found.request("B1", Receive(name, 10))
    found.pass_time(2 * VISIBLE_MS)
    for name in ("s", "other"):
        found.request("B1", Receive(name, 10))  # what was received once too often becomes a dead letter
    publish(found, 3)
    return found


def publish(network: Network, x: int) -> None:
    network.request("B1", Publish([msgspec.json.encode({"x": x})]))


def letters(network: Network, broker: str) -> list[tuple[str | None, int]]:
    """Dead letters: of which queue, and what."""
    queues = network.brokers[broker].node.broker.queues
    held = queues.transfers.find("dead").messages.values() if queues.exists("dead") else ()
    return sorted((each.origin, msgspec.json.decode(each.body)["x"]) for each in held)


def move(network: Network) -> None:
    broker = network.brokers["B1"]
    network._perform(broker, broker.node.move("", "s", "B2", network.now_ms))


def end(network: Network) -> None:
    """Let all steps of the move happen."""
    for _ in range(40):
        network.settle()
        network.pass_time(500)
    network.settle()


def check(network: Network) -> None:
    assert letters(network, "B1") == [("other", 1), ("other", 2)]
    assert letters(network, "B2") == [("s", 1), ("s", 2)]
    assert [each["x"] for each in network.received("B2", "s")] == [3]
    migrations = [each.node.broker.migrations for each in network.brokers.values()]
    assert not any(each.departures or each.arrivals for each in migrations)


def test_dead_letters_of_the_subscription_follow_and_others_stay() -> None:
    found = network()
    assert letters(found, "B1") == [("other", 1), ("other", 2), ("s", 1), ("s", 2)]
    move(found)
    end(found)
    check(found)


@pytest.mark.parametrize("victim", ["B1", "B2"])
@pytest.mark.parametrize("step", range(0, 40, 5))
def test_each_follows_once_if_a_broker_crashes_at_any_step(step: int, victim: str) -> None:
    found = network()
    move(found)
    for _ in range(step):
        found.step()
    found.restart(victim)
    found.join("B2", "B1")
    end(found)
    if found.brokers["B1"].node.broker.subscriptions.has("", "s"):  # undone
        move(found)
        end(found)
    check(found)


def test_a_dead_letter_says_at_the_new_broker_too_why_it_is_one_and_how_often_it_was_tried() -> None:
    found = network()
    answer: Any = found.request("B1", Receive("s", 1))
    (delivery,) = answer.deliveries
    found.request("B1", ChangeVisibility("s", [VisibilityChange(delivery.receipt, 0, "no such customer")]))
    found.request("B1", Receive("s", 1))
    move(found)
    end(found)
    held = found.brokers["B2"].node.broker.queues.transfers.find("dead").messages.values()
    assert sorted((each.reason, each.attempts) for each in held) == [("", 1), ("", 1), ("no such customer", 1)]


def test_a_dead_letter_that_somebody_holds_follows_when_its_lease_ends() -> None:
    found = network()
    answer: Any = found.request("B1", Receive("dead", 10, 60_000))
    assert len(answer.deliveries) == 4
    move(found)
    end(found)
    assert [origin for origin, _ in letters(found, "B1")].count("s") == 2
    found.pass_time(60_000)
    end(found)
    check(found)
