"""Acknowledging, and changing how long a message is hidden: whose receipt counts."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.machines import Q, QueueMachine, bodies, machine_with, receipts

from lavant.broker.protocol.queue_config import VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Acknowledge, ChangeVisibility, Open, Receipt
from lavant.broker.queues.operations.transfer import Relocation, RelocationStage
from lavant.core.errors import InvalidValue, LimitExceeded, UnknownQueue

BOTH_ORDERS = pytest.mark.parametrize("order", ["out-of-order", "in-order"])


@BOTH_ORDERS
def test_an_acknowledged_message_never_comes_back(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a", b"b")
    machine.acknowledge(machine.receive()[0].receipt)
    assert bodies(machine.receive(5, now_ms=10**6)) == [b"b"]
    figures = machine.figures()
    assert (figures.acknowledged, figures.returned) == (1, 0)


@BOTH_ORDERS
def test_acknowledging_twice_is_no_fault_and_counts_once(order: str) -> None:
    machine = machine_with(order=order)
    machine.send(b"a")
    (delivery,) = machine.receive()
    assert machine.acknowledge(delivery.receipt, delivery.receipt) == {}
    assert machine.acknowledge(delivery.receipt) == {}
    assert not machine.changed
    assert machine.figures().acknowledged == 1
    assert machine.states() == (0, 0, 0)


@BOTH_ORDERS
def test_a_late_receipt_counts_while_nobody_else_has_had_the_message(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a")
    (delivery,) = machine.receive()
    assert machine.states(now_ms=100) == (1, 0, 0)
    assert machine.acknowledge(delivery.receipt) == {}
    assert machine.receive() == []
    assert machine.states() == (0, 0, 0)


def test_a_receipt_from_before_a_move_is_refused_since_the_message_has_another_number_now() -> None:
    machine = machine_with(visibility_ms=100)
    (old,) = machine.send(b"a")
    (delivery,) = machine.receive()
    machine.states(now_ms=100)
    machine.transfers.relocations[Q] = Relocation(RelocationStage.ARRIVING, Q, "B2")
    assert machine.acknowledge(delivery.receipt, Receipt(9, 1)) == dict.fromkeys((0, 1), "NotInFlight")
    del machine.transfers.relocations[Q]
    machine.transfers.arrange(Q, [old], above=50)
    for each in (machine, QueueMachine.restore(machine.snapshot())):
        assert isinstance(each, QueueMachine)
        assert each.acknowledge(delivery.receipt, Receipt(50, 1)) == dict.fromkeys((0, 1), "NotInFlight")
        (again,) = each.receive()
        assert again.receipt.number == 51
        assert each.acknowledge(again.receipt, again.receipt) == {}


@BOTH_ORDERS
def test_a_late_acknowledgement_leaves_nothing_to_receive(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a")
    (delivery,) = machine.receive()
    machine.acknowledge(delivery.receipt, now_ms=100)
    assert not machine.visible(Q, 100)
    assert machine.receive() == []


@BOTH_ORDERS
def test_a_receipt_is_refused_while_somebody_else_has_the_message(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a")
    (late,) = machine.receive()
    (current,) = machine.receive(now_ms=100)
    assert machine.acknowledge(late.receipt, current.receipt) == {0: "StaleReceipt"}
    assert machine.states() == (0, 0, 0)


def test_when_nobody_has_the_message_any_receipt_counts_out_of_order() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a")
    (late,) = machine.receive()
    machine.receive(now_ms=100)
    assert machine.acknowledge(late.receipt, now_ms=200) == {}
    assert machine.states() == (0, 0, 0)


def test_when_nobody_has_the_message_only_the_latest_receipt_counts_in_order() -> None:
    machine = machine_with(order="in-order", visibility_ms=100)
    machine.send(b"a")
    (late,) = machine.receive()
    (latest,) = machine.receive(now_ms=100)
    assert machine.acknowledge(late.receipt, now_ms=200) == {0: "StaleReceipt"}
    assert machine.acknowledge(latest.receipt) == {}


@BOTH_ORDERS
def test_a_receipt_that_the_machine_forgot_in_a_crash_counts_until_the_message_is_received_again(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a", group="a" if order == "in-order" else "")
    machine.send(b"b", group="b" if order == "in-order" else "")
    first, second = machine.receive(2)
    machine.handle(Open(2), 100)  # both leases are over, and two later ones were lost
    forgotten = [Receipt(each.receipt.number, each.receipt.lease + 2) for each in (first, second)]
    machine.receive(1, now_ms=100)
    assert machine.acknowledge(*forgotten) == {0: "StaleReceipt"}


@BOTH_ORDERS
def test_a_lost_lease_is_later_than_the_one_that_the_machine_remembers(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a")
    (delivery,) = machine.receive()
    machine.handle(Open(2), 50)
    assert machine.states() == (0, 1, 0)
    assert machine.acknowledge(Receipt(delivery.receipt.number, delivery.receipt.lease + 1)) == {}


@BOTH_ORDERS
def test_a_lease_that_was_never_given_is_refused(order: str) -> None:
    machine = machine_with(order=order)
    machine.send(b"a")
    (delivery,) = machine.receive()
    assert machine.acknowledge(Receipt(1, delivery.receipt.lease + 1)) == {0: "InvalidValue"}
    assert machine.change((Receipt(1, delivery.receipt.lease + 1), 0)) == {0: "InvalidValue"}
    assert machine.states() == (0, 1, 0)


def test_a_message_of_another_queue_stays() -> None:
    machine = machine_with()
    machine.create("others")
    machine.send(b"a")
    (delivery,) = machine.receive()
    assert machine.acknowledge(delivery.receipt, queue="others") == {}
    assert machine.states() == (0, 1, 0)


@BOTH_ORDERS
def test_a_lease_can_be_made_longer_and_shorter(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a")
    (delivery,) = machine.receive()
    assert machine.change((delivery.receipt, 500), now_ms=50) == {}
    assert machine.receive(now_ms=549) == []
    assert machine.change((delivery.receipt, 20)) == {}
    assert machine.wakeup_ms() == 569
    assert machine.receive(now_ms=568) == []
    assert bodies(machine.receive(now_ms=569)) == [b"a"]


def test_a_lease_that_was_changed_to_and_fro_ends_once() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a")
    (delivery,) = machine.receive()
    for visibility_ms in [300, 200, 300, 200, 300]:
        machine.change((delivery.receipt, visibility_ms))
    assert machine.states(now_ms=299) == (0, 1, 0)
    assert len(machine.receive(5, now_ms=300)) == 1
    assert machine.figures().returned == 1


@BOTH_ORDERS
def test_a_message_can_be_given_back_at_once(order: str) -> None:
    machine = machine_with(order=order)
    machine.send(b"a", b"b")
    first, second = machine.receive(2)
    assert machine.change((second.receipt, 0), (first.receipt, 0)) == {}
    assert machine.states() == (2, 0, 0)
    expected = [b"b", b"a"] if order == "out-of-order" else [b"a", b"b"]
    assert bodies(machine.receive(2)) == expected


@BOTH_ORDERS
def test_only_who_has_a_message_may_keep_it(order: str) -> None:
    machine = machine_with(order=order, visibility_ms=100)
    machine.send(b"a")
    (late,) = machine.receive()
    assert machine.change((late.receipt, 100), now_ms=100) == {0: "NotInFlight"}
    (current,) = machine.receive()
    assert machine.change((late.receipt, 100)) == {0: "StaleReceipt"}
    assert machine.change((current.receipt, 100)) == {}
    machine.acknowledge(current.receipt)
    assert machine.change((current.receipt, 100)) == {0: "NotInFlight"}
    assert not machine.changed


def test_a_delayed_message_is_not_in_flight() -> None:
    machine = machine_with()
    machine.send(b"a", delay_ms=100)
    assert machine.change((Receipt(1, 0), 0)) == {0: "NotInFlight"}
    assert machine.states() == (0, 0, 1)


def test_each_change_of_a_batch_stands_for_itself() -> None:
    machine = machine_with()
    machine.send(b"a", b"b", b"c")
    first, second, third = receipts(machine.receive(3))
    changes = [(first, -1), (second, VISIBILITY_MS_MAX + 1), (third, 0)]
    assert machine.change(*changes) == {0: "InvalidValue", 1: "LimitExceeded"}
    assert machine.states() == (1, 2, 0)


@pytest.mark.parametrize("kind", [Acknowledge, ChangeVisibility])
def test_a_whole_batch_is_refused(kind: type[Acknowledge | ChangeVisibility]) -> None:
    machine = machine_with()
    with pytest.raises(UnknownQueue):
        machine.handle(kind("nobody", []), 0)
    with pytest.raises(InvalidValue, match="no entries"):
        machine.handle(kind(Q, []), 0)
    with pytest.raises(LimitExceeded, match="1001 entries"):
        machine.handle(Acknowledge(Q, [Receipt(1, 1)] * 1001), 0)
