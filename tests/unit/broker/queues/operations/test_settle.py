"""Acknowledging, and changing how long a message is hidden: whose receipt counts."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.hubs import Q, bodies, hub_with, receipts

from lavant.broker.protocol.queue_config import VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Acknowledge, ChangeVisibility, Open, Receipt
from lavant.core.errors import InvalidValue, LimitExceeded, UnknownQueue

BOTH_ORDERS = pytest.mark.parametrize("order", ["out-of-order", "in-order"])


@BOTH_ORDERS
def test_an_acknowledged_message_never_comes_back(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a", b"b")
    hub.acknowledge(hub.receive()[0].receipt)
    assert bodies(hub.receive(5, now_ms=10**6)) == [b"b"]
    figures = hub.figures()
    assert (figures.acknowledged, figures.returned) == (1, 0)


@BOTH_ORDERS
def test_acknowledging_twice_is_no_fault_and_counts_once(order: str) -> None:
    hub = hub_with(order=order)
    hub.send(b"a")
    (delivery,) = hub.receive()
    assert hub.acknowledge(delivery.receipt, delivery.receipt) == {}
    assert hub.acknowledge(delivery.receipt) == {}
    assert not hub.changed
    assert hub.figures().acknowledged == 1
    assert hub.states() == (0, 0, 0)


@BOTH_ORDERS
def test_a_late_receipt_counts_while_nobody_else_has_had_the_message(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a")
    (delivery,) = hub.receive()
    assert hub.states(now_ms=100) == (1, 0, 0)
    assert hub.acknowledge(delivery.receipt) == {}
    assert hub.receive() == []
    assert hub.states() == (0, 0, 0)


@BOTH_ORDERS
def test_a_late_acknowledgement_leaves_nothing_to_receive(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a")
    (delivery,) = hub.receive()
    hub.acknowledge(delivery.receipt, now_ms=100)
    assert not hub.visible(Q, 100)
    assert hub.receive() == []


@BOTH_ORDERS
def test_a_receipt_is_refused_while_somebody_else_has_the_message(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a")
    (late,) = hub.receive()
    (current,) = hub.receive(now_ms=100)
    assert hub.acknowledge(late.receipt, current.receipt) == {0: "StaleReceipt"}
    assert hub.states() == (0, 0, 0)


def test_when_nobody_has_the_message_any_receipt_counts_out_of_order() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a")
    (late,) = hub.receive()
    hub.receive(now_ms=100)
    assert hub.acknowledge(late.receipt, now_ms=200) == {}
    assert hub.states() == (0, 0, 0)


def test_when_nobody_has_the_message_only_the_latest_receipt_counts_in_order() -> None:
    hub = hub_with(order="in-order", visibility_ms=100)
    hub.send(b"a")
    (late,) = hub.receive()
    (latest,) = hub.receive(now_ms=100)
    assert hub.acknowledge(late.receipt, now_ms=200) == {0: "StaleReceipt"}
    assert hub.acknowledge(latest.receipt) == {}


@BOTH_ORDERS
def test_a_receipt_that_the_hub_forgot_in_a_crash_counts_until_the_message_is_received_again(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a", group="a" if order == "in-order" else "")
    hub.send(b"b", group="b" if order == "in-order" else "")
    first, second = hub.receive(2)
    hub.handle(Open(2), 100)  # both leases are over, and two later ones were lost
    forgotten = [Receipt(each.receipt.number, each.receipt.lease + 2) for each in (first, second)]
    hub.receive(1, now_ms=100)
    assert hub.acknowledge(*forgotten) == {0: "StaleReceipt"}


@BOTH_ORDERS
def test_a_lost_lease_is_later_than_the_one_that_the_hub_remembers(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a")
    (delivery,) = hub.receive()
    hub.handle(Open(2), 50)
    assert hub.states() == (0, 1, 0)
    assert hub.acknowledge(Receipt(delivery.receipt.number, delivery.receipt.lease + 1)) == {}


@BOTH_ORDERS
def test_a_lease_that_was_never_given_is_refused(order: str) -> None:
    hub = hub_with(order=order)
    hub.send(b"a")
    (delivery,) = hub.receive()
    assert hub.acknowledge(Receipt(1, delivery.receipt.lease + 1)) == {0: "InvalidValue"}
    assert hub.change((Receipt(1, delivery.receipt.lease + 1), 0)) == {0: "InvalidValue"}
    assert hub.states() == (0, 1, 0)


def test_a_message_of_another_queue_stays() -> None:
    hub = hub_with()
    hub.create("others")
    hub.send(b"a")
    (delivery,) = hub.receive()
    assert hub.acknowledge(delivery.receipt, queue="others") == {}
    assert hub.states() == (0, 1, 0)


@BOTH_ORDERS
def test_a_lease_can_be_made_longer_and_shorter(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a")
    (delivery,) = hub.receive()
    assert hub.change((delivery.receipt, 500), now_ms=50) == {}
    assert hub.receive(now_ms=549) == []
    assert hub.change((delivery.receipt, 20)) == {}
    assert hub.wakeup_ms() == 569
    assert hub.receive(now_ms=568) == []
    assert bodies(hub.receive(now_ms=569)) == [b"a"]


def test_a_lease_that_was_changed_to_and_fro_ends_once() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a")
    (delivery,) = hub.receive()
    for visibility_ms in [300, 200, 300, 200, 300]:
        hub.change((delivery.receipt, visibility_ms))
    assert hub.states(now_ms=299) == (0, 1, 0)
    assert len(hub.receive(5, now_ms=300)) == 1
    assert hub.figures().returned == 1


@BOTH_ORDERS
def test_a_message_can_be_given_back_at_once(order: str) -> None:
    hub = hub_with(order=order)
    hub.send(b"a", b"b")
    first, second = hub.receive(2)
    assert hub.change((second.receipt, 0), (first.receipt, 0)) == {}
    assert hub.states() == (2, 0, 0)
    expected = [b"b", b"a"] if order == "out-of-order" else [b"a", b"b"]
    assert bodies(hub.receive(2)) == expected


@BOTH_ORDERS
def test_only_who_has_a_message_may_keep_it(order: str) -> None:
    hub = hub_with(order=order, visibility_ms=100)
    hub.send(b"a")
    (late,) = hub.receive()
    assert hub.change((late.receipt, 100), now_ms=100) == {0: "NotInFlight"}
    (current,) = hub.receive()
    assert hub.change((late.receipt, 100)) == {0: "StaleReceipt"}
    assert hub.change((current.receipt, 100)) == {}
    hub.acknowledge(current.receipt)
    assert hub.change((current.receipt, 100)) == {0: "NotInFlight"}
    assert not hub.changed


def test_a_delayed_message_is_not_in_flight() -> None:
    hub = hub_with()
    hub.send(b"a", delay_ms=100)
    assert hub.change((Receipt(1, 0), 0)) == {0: "NotInFlight"}
    assert hub.states() == (0, 0, 1)


def test_each_change_of_a_batch_stands_for_itself() -> None:
    hub = hub_with()
    hub.send(b"a", b"b", b"c")
    first, second, third = receipts(hub.receive(3))
    changes = [(first, -1), (second, VISIBILITY_MS_MAX + 1), (third, 0)]
    assert hub.change(*changes) == {0: "InvalidValue", 1: "LimitExceeded"}
    assert hub.states() == (1, 2, 0)


@pytest.mark.parametrize("kind", [Acknowledge, ChangeVisibility])
def test_a_whole_batch_is_refused(kind: type[Acknowledge | ChangeVisibility]) -> None:
    hub = hub_with()
    with pytest.raises(UnknownQueue):
        hub.handle(kind("nobody", []), 0)
    with pytest.raises(InvalidValue, match="no entries"):
        hub.handle(kind(Q, []), 0)
    with pytest.raises(LimitExceeded, match="1001 entries"):
        hub.handle(Acknowledge(Q, [Receipt(1, 1)] * 1001), 0)
