"""A broker whose disk is slow gets each batch of a move several times: it records it once."""

from __future__ import annotations

from tests.unit.broker.federation.test_links import chain, numbers, publication

from lavant.broker.federation.frames import BrokerMessage, MessagesTaken
from lavant.broker.protocol.subscriptions import Publish, Subscribe


def test_messages_that_come_again_while_a_slow_disk_takes_them_are_recorded_once() -> None:
    network = chain("A", "B")
    network.request("A", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=x) for x in range(5)]))
    old, new = network.brokers["A"], network.brokers["B"]
    network.perform("A", old.node.move("", "s", "B", network.now_ms))
    while not any(each.is_handed_over for each in old.node.broker.migrations.departures.values()):
        network.step()
    new.is_disk_stopped = True
    network.settle()
    [arrival] = new.node.broker.migrations.arrivals.values()
    assert len(arrival.followed) == 5
    records, frames = len(new.records), network.frames
    for _ in range(5):
        network.pass_time(2_000)
        network.settle()
    assert network.frames > frames, "the old broker repeats what was not confirmed"
    assert len(new.records) == records
    network.resume_disk("B")
    for _ in range(5):
        network.pass_time(2_000)
        network.settle()
    assert numbers(network, "B", "s") == [0, 1, 2, 3, 4]


def test_confirmations_that_come_again_are_recorded_once() -> None:
    network = chain("A", "B")
    network.request("A", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=x) for x in range(5)]))
    old = network.brokers["A"]
    network.perform("A", old.node.move("", "s", "B", network.now_ms))
    [departure] = old.node.broker.migrations.departures.values()
    while old.node.queues.transfers.find("s").messages:
        network.step()
    [session] = old.node.machine.sessions.values()
    records = len(old.records)
    again = BrokerMessage("id-B", "id-A", MessagesTaken(departure.migration, [1, 2, 3, 4, 5]))
    network.perform("A", old.node.frame(session.connection, again, network.now_ms))
    assert len(old.records) == records
    network.settle()
    assert numbers(network, "B", "s") == [0, 1, 2, 3, 4]
