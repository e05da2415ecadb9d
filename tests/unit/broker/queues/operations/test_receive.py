"""Receiving: who gets what, for how long, and how often."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.machines import Q, bodies, machine_with, receipts

from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX, VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Receive
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, TooManyInFlight, UnknownQueue


def test_a_message_is_hidden_from_others_while_its_lease_lasts() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a")
    assert bodies(machine.receive(now_ms=10)) == [b"a"]
    assert machine.receive(now_ms=109) == []
    assert machine.wakeup_ms() == 110
    (again,) = machine.receive(now_ms=110)
    assert (again.body, again.receive_count, again.first_received_ms, again.sent_ms) == (b"a", 2, 10, 0)
    assert machine.figures().returned == 1


def test_a_receive_can_say_for_how_long() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a")
    machine.receive(visibility_ms=5)
    assert bodies(machine.receive(now_ms=5, visibility_ms=VISIBILITY_MS_MAX)) == [b"a"]
    assert machine.receive(now_ms=5 + VISIBILITY_MS_MAX - 1) == []


def test_a_receive_for_no_time_at_all_leaves_the_message_to_others() -> None:
    machine = machine_with()
    machine.send(b"a", b"b")
    assert bodies(machine.receive(2, visibility_ms=0)) == [b"a", b"b"]
    assert machine.states() == (2, 0, 0)
    assert [delivery.receive_count for delivery in machine.receive(2)] == [2, 2]
    assert machine.figures().returned == 2


def test_every_delivery_has_a_lease_of_its_own() -> None:
    machine = machine_with()
    machine.send(b"a", b"b", b"c")
    given = receipts(machine.receive(2)) + receipts(machine.receive(1)) + receipts(machine.receive(3, now_ms=30_000))
    leases = [receipt.lease for receipt in given]
    assert leases == sorted(set(leases))
    assert leases[0] == (1 << 40) + 1


def test_what_returns_goes_to_the_end_of_an_out_of_order_line() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a", b"b", b"c")
    machine.receive(2)
    machine.send(b"d", now_ms=100)
    assert bodies(machine.receive(5)) == [b"c", b"a", b"b", b"d"]


def test_no_more_is_delivered_than_is_asked_for_or_there() -> None:
    machine = machine_with()
    machine.send(*[bytes([n]) for n in range(5)])
    assert [len(machine.receive(3)) for _ in range(3)] == [3, 2, 0]


def test_an_empty_receive_changes_nothing() -> None:
    machine = machine_with()
    assert machine.receive() == []
    assert not machine.changed


def test_an_answer_is_no_larger_than_a_batch_may_be() -> None:
    machine = machine_with()
    for _ in range(18):
        machine.send(bytes(MESSAGE_BYTES_MAX))
    assert len(machine.receive(18)) == BATCH_BYTES_MAX // MESSAGE_BYTES_MAX == 16
    assert len(machine.receive(18)) == 2


def test_only_so_many_may_be_in_flight() -> None:
    machine = machine_with(in_flight_max=3)
    machine.send(*[b""] * 5)
    first = machine.receive(2)
    assert len(machine.receive(2)) == 1
    assert not machine.visible(Q, 0)
    with pytest.raises(TooManyInFlight, match="3 messages of queue 'orders' are in flight"):
        machine.receive()
    machine.acknowledge(first[0].receipt)
    assert machine.visible(Q, 0)
    assert len(machine.receive(2)) == 1


def test_a_queue_that_has_nothing_visible_is_empty_even_if_no_more_may_be_in_flight() -> None:
    machine = machine_with(in_flight_max=1)
    machine.send(b"a")
    machine.receive()
    assert machine.receive() == []


def test_the_machine_says_whether_a_receive_would_find_something() -> None:
    machine = machine_with(visibility_ms=100)
    assert not machine.visible(Q, 0)
    machine.send(b"a", delay_ms=50)
    assert not machine.visible(Q, 49)
    assert machine.visible(Q, 50)
    machine.receive()
    assert not machine.visible(Q, 149)
    assert machine.visible(Q, 150)
    with pytest.raises(UnknownQueue):
        machine.visible("nobody", 150)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Receive("nobody"), UnknownQueue),
        (Receive(Q, 0), InvalidValue),
        (Receive(Q, 1001), LimitExceeded),
        (Receive(Q, visibility_ms=-1), InvalidValue),
        (Receive(Q, visibility_ms=VISIBILITY_MS_MAX + 1), LimitExceeded),
        (Receive(Q, wait_ms=-1), InvalidValue),
        (Receive(Q, wait_ms=20_001), LimitExceeded),
    ],
)
def test_a_receive_is_refused(request_: Receive, error: type[LavantError]) -> None:
    machine = machine_with()
    machine.send(b"a")
    with pytest.raises(error):
        machine.handle(request_, 0)
    assert machine.states() == (1, 0, 0)


def test_a_consumer_learns_all_about_a_message() -> None:
    machine = machine_with("in-order", order="in-order")
    machine.send(b"body", queue="in-order", now_ms=5, attributes=b"attributes", group="g", deduplication="d")
    (delivery,) = machine.receive(queue="in-order", now_ms=7)
    assert (delivery.body, delivery.attributes, delivery.group, delivery.deduplication) == (
        b"body",
        b"attributes",
        "g",
        "d",
    )
    assert (delivery.sent_ms, delivery.first_received_ms, delivery.receive_count) == (5, 7, 1)
    assert (delivery.receipt.number, delivery.origin) == (1, None)
