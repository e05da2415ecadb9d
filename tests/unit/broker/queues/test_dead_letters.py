"""Dead letters: what was received too often in vain goes to another queue, and nothing is lost on the way."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.machines import MINUTE_MS, Q, QueueMachine, bodies, machine_with, receipts

from lavant.broker.protocol.queues import DeleteQueue
from lavant.broker.queues.operations import receive as receiving

DEAD = "dead"
BOTH_ORDERS = pytest.mark.parametrize("order", ["out-of-order", "in-order"])


def machine_with_dead_letters(order: str = "out-of-order", *, receives_max: int = 2, room: int = 100) -> QueueMachine:
    machine = machine_with(DEAD, order=order, depth_max=room)
    machine.create(Q, order=order, visibility_ms=100, dead_letters=DEAD, receives_max=receives_max)
    return machine


def fail(machine: QueueMachine, times: int, count: int = 1) -> None:
    for _ in range(times):
        assert machine.receive(count)
        machine.advance(machine.now_ms + 100)


@BOTH_ORDERS
def test_a_message_that_was_received_so_often_is_moved_at_the_next_receive(order: str) -> None:
    machine = machine_with_dead_letters(order)
    machine.send(b"poison", b"good")
    fail(machine, 1)
    assert bodies(machine.receive(2))[-1] in (b"good", b"poison")
    machine.advance(machine.now_ms + 100)
    assert machine.states(DEAD) == (0, 0, 0)
    assert bodies(machine.receive(2)) == [b"good"]
    (letter,) = machine.receive(queue=DEAD)
    assert (letter.body, letter.origin, letter.receipt.number, letter.receive_count) == (b"poison", Q, 1, 1)
    assert machine.figures().dead_lettered == 1


@BOTH_ORDERS
def test_a_receive_that_finds_only_dead_letters_is_empty_and_has_changed_something(order: str) -> None:
    machine = machine_with_dead_letters(order, receives_max=1)
    machine.send(b"poison")
    fail(machine, 1)
    assert machine.visible(Q, machine.now_ms)
    assert machine.receive() == []
    assert machine.changed
    assert not machine.visible(Q, machine.now_ms)
    assert machine.visible(DEAD, machine.now_ms)
    assert machine.receive() == []
    assert not machine.changed


@BOTH_ORDERS
def test_others_take_the_place_of_dead_letters_in_the_same_receive(order: str) -> None:
    machine = machine_with_dead_letters(order, receives_max=1)
    for n in range(6):
        machine.send(b"%d" % n, group=str(n) if order == "in-order" else "")
    fail(machine, 1, count=3)
    machine.send(b"6", group="6" if order == "in-order" else "")
    assert bodies(machine.receive(4)) == [b"3", b"4", b"5", b"6"]
    assert bodies(machine.receive(9, queue=DEAD)) == [b"0", b"1", b"2"]


def test_within_a_group_dead_letters_make_way_for_those_behind_them() -> None:
    machine = machine_with_dead_letters("in-order", receives_max=1)
    machine.send(b"1", b"2", b"3", b"4", group="a")
    fail(machine, 1, count=2)
    assert bodies(machine.receive(4)) == [b"3", b"4"]
    letters = machine.receive(4, queue=DEAD)
    assert [(letter.body, letter.group) for letter in letters] == [(b"1", "a"), (b"2", "a")]


@BOTH_ORDERS
def test_a_message_whose_dead_letter_queue_is_full_is_delivered_once_more(order: str) -> None:
    machine = machine_with_dead_letters(order, receives_max=1, room=1)
    machine.send(b"1", b"2")
    fail(machine, 1, count=2)
    assert bodies(machine.receive(2)) == [b"2"]
    assert machine.states(DEAD) == (1, 0, 0)


@BOTH_ORDERS
def test_a_message_whose_dead_letter_queue_is_deleted_is_delivered_until_there_is_one_again(order: str) -> None:
    machine = machine_with_dead_letters(order, receives_max=1)
    machine.send(b"poison")
    machine.handle(DeleteQueue(DEAD), 0)
    fail(machine, 3)
    other = "in-order" if order == "out-of-order" else "out-of-order"
    machine.create(DEAD, order=other)
    fail(machine, 1)
    machine.handle(DeleteQueue(DEAD), machine.now_ms)
    machine.create(DEAD, order=order)
    assert machine.receive() == []
    assert bodies(machine.receive(queue=DEAD)) == [b"poison"]


def test_a_late_acknowledgement_at_the_source_does_not_reach_a_dead_letter() -> None:
    machine = machine_with_dead_letters(receives_max=1)
    machine.send(b"poison")
    (late,) = receipts(machine.receive())
    machine.advance(100)
    machine.receive()
    assert machine.acknowledge(late) == {}
    assert machine.states(DEAD) == (1, 0, 0)
    assert machine.acknowledge(late, queue=DEAD) == {}
    assert machine.states(DEAD) == (0, 0, 0)


def test_in_order_a_superseded_receipt_does_not_reach_a_dead_letter_either() -> None:
    machine = machine_with_dead_letters("in-order", receives_max=2)
    machine.send(b"poison")
    (superseded,) = receipts(machine.receive(visibility_ms=0))
    (latest,) = receipts(machine.receive(visibility_ms=0))
    machine.receive()
    assert machine.acknowledge(superseded, queue=DEAD) == {0: "StaleReceipt"}
    assert machine.acknowledge(latest, queue=DEAD) == {}
    assert machine.states(DEAD) == (0, 0, 0)


def test_the_retention_of_a_dead_letter_counts_from_its_move() -> None:
    machine = QueueMachine()
    machine.create(DEAD, retention_ms=MINUTE_MS)
    machine.create(Q, visibility_ms=0, dead_letters=DEAD, receives_max=1)
    machine.send(b"poison", now_ms=1000)
    machine.receive()
    assert machine.receive(now_ms=50_000) == []
    figures = machine.figures(DEAD, now_ms=100_000)
    assert (figures.visible, figures.oldest_sent_ms) == (1, 50_000)
    assert machine.peek(DEAD)[0].sent_ms == 1000
    assert machine.states(DEAD, now_ms=110_000) == (0, 0, 0)


def test_a_delay_is_not_for_dead_letters() -> None:
    machine = QueueMachine()
    machine.create(DEAD, delay_ms=1000)
    machine.create(Q, visibility_ms=0, dead_letters=DEAD, receives_max=1)
    machine.send(b"poison")
    machine.receive(2)
    machine.receive()
    assert machine.states(DEAD) == (1, 0, 0)


def test_one_receive_moves_only_so_many_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "DEAD_LETTERS_MAX", 4)
    machine = machine_with_dead_letters(receives_max=1)
    machine.send(*[b"poison"] * 10)
    fail(machine, 1, count=10)
    machine.send(b"good")
    left = []
    while not (received := machine.receive(2)):
        assert machine.changed
        left.append(machine.states()[0])
    assert left == [7, 3]
    assert bodies(received) == [b"good"]
