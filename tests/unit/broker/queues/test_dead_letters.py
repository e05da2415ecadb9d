"""Dead letters: what was received too often in vain goes to another queue, and nothing is lost on the way."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.hubs import MINUTE_MS, Hub, Q, bodies, hub_with, receipts

from lavant.broker.protocol.queues import DeleteQueue
from lavant.broker.queues.operations import receive as receiving

DEAD = "dead"
BOTH_ORDERS = pytest.mark.parametrize("order", ["out-of-order", "in-order"])


def hub_with_dead_letters(order: str = "out-of-order", *, receives_max: int = 2, room: int = 100) -> Hub:
    hub = hub_with(DEAD, order=order, depth_max=room)
    hub.create(Q, order=order, visibility_ms=100, dead_letters=DEAD, receives_max=receives_max)
    return hub


def fail(hub: Hub, times: int, count: int = 1) -> None:
    for _ in range(times):
        assert hub.receive(count)
        hub.advance(hub.now_ms + 100)


@BOTH_ORDERS
def test_a_message_that_was_received_so_often_is_moved_at_the_next_receive(order: str) -> None:
    hub = hub_with_dead_letters(order)
    hub.send(b"poison", b"good")
    fail(hub, 1)
    assert bodies(hub.receive(2))[-1] in (b"good", b"poison")
    hub.advance(hub.now_ms + 100)
    assert hub.states(DEAD) == (0, 0, 0)
    assert bodies(hub.receive(2)) == [b"good"]
    (letter,) = hub.receive(queue=DEAD)
    assert (letter.body, letter.origin, letter.receipt.number, letter.receive_count) == (b"poison", Q, 1, 1)
    assert hub.figures().dead_lettered == 1


@BOTH_ORDERS
def test_a_receive_that_finds_only_dead_letters_is_empty_and_has_changed_something(order: str) -> None:
    hub = hub_with_dead_letters(order, receives_max=1)
    hub.send(b"poison")
    fail(hub, 1)
    assert hub.visible(Q, hub.now_ms)
    assert hub.receive() == []
    assert hub.changed
    assert not hub.visible(Q, hub.now_ms)
    assert hub.visible(DEAD, hub.now_ms)
    assert hub.receive() == []
    assert not hub.changed


@BOTH_ORDERS
def test_others_take_the_place_of_dead_letters_in_the_same_receive(order: str) -> None:
    hub = hub_with_dead_letters(order, receives_max=1)
    for n in range(6):
        hub.send(b"%d" % n, group=str(n) if order == "in-order" else "")
    fail(hub, 1, count=3)
    hub.send(b"6", group="6" if order == "in-order" else "")
    assert bodies(hub.receive(4)) == [b"3", b"4", b"5", b"6"]
    assert bodies(hub.receive(9, queue=DEAD)) == [b"0", b"1", b"2"]


def test_within_a_group_dead_letters_make_way_for_those_behind_them() -> None:
    hub = hub_with_dead_letters("in-order", receives_max=1)
    hub.send(b"1", b"2", b"3", b"4", group="a")
    fail(hub, 1, count=2)
    assert bodies(hub.receive(4)) == [b"3", b"4"]
    letters = hub.receive(4, queue=DEAD)
    assert [(letter.body, letter.group) for letter in letters] == [(b"1", "a"), (b"2", "a")]


@BOTH_ORDERS
def test_a_message_whose_dead_letter_queue_is_full_is_delivered_once_more(order: str) -> None:
    hub = hub_with_dead_letters(order, receives_max=1, room=1)
    hub.send(b"1", b"2")
    fail(hub, 1, count=2)
    assert bodies(hub.receive(2)) == [b"2"]
    assert hub.states(DEAD) == (1, 0, 0)


@BOTH_ORDERS
def test_a_message_whose_dead_letter_queue_is_deleted_is_delivered_until_there_is_one_again(order: str) -> None:
    hub = hub_with_dead_letters(order, receives_max=1)
    hub.send(b"poison")
    hub.handle(DeleteQueue(DEAD), 0)
    fail(hub, 3)
    other = "in-order" if order == "out-of-order" else "out-of-order"
    hub.create(DEAD, order=other)
    fail(hub, 1)
    hub.handle(DeleteQueue(DEAD), hub.now_ms)
    hub.create(DEAD, order=order)
    assert hub.receive() == []
    assert bodies(hub.receive(queue=DEAD)) == [b"poison"]


def test_a_late_acknowledgement_at_the_source_does_not_reach_a_dead_letter() -> None:
    hub = hub_with_dead_letters(receives_max=1)
    hub.send(b"poison")
    (late,) = receipts(hub.receive())
    hub.advance(100)
    hub.receive()
    assert hub.acknowledge(late) == {}
    assert hub.states(DEAD) == (1, 0, 0)
    assert hub.acknowledge(late, queue=DEAD) == {}
    assert hub.states(DEAD) == (0, 0, 0)


def test_in_order_a_superseded_receipt_does_not_reach_a_dead_letter_either() -> None:
    hub = hub_with_dead_letters("in-order", receives_max=2)
    hub.send(b"poison")
    (superseded,) = receipts(hub.receive(visibility_ms=0))
    (latest,) = receipts(hub.receive(visibility_ms=0))
    hub.receive()
    assert hub.acknowledge(superseded, queue=DEAD) == {0: "StaleReceipt"}
    assert hub.acknowledge(latest, queue=DEAD) == {}
    assert hub.states(DEAD) == (0, 0, 0)


def test_the_retention_of_a_dead_letter_counts_from_its_move() -> None:
    hub = Hub()
    hub.create(DEAD, retention_ms=MINUTE_MS)
    hub.create(Q, visibility_ms=0, dead_letters=DEAD, receives_max=1)
    hub.send(b"poison", now_ms=1000)
    hub.receive()
    assert hub.receive(now_ms=50_000) == []
    figures = hub.figures(DEAD, now_ms=100_000)
    assert (figures.visible, figures.oldest_sent_ms) == (1, 50_000)
    assert hub.peek(DEAD)[0].sent_ms == 1000
    assert hub.states(DEAD, now_ms=110_000) == (0, 0, 0)


def test_a_delay_is_not_for_dead_letters() -> None:
    hub = Hub()
    hub.create(DEAD, delay_ms=1000)
    hub.create(Q, visibility_ms=0, dead_letters=DEAD, receives_max=1)
    hub.send(b"poison")
    hub.receive(2)
    hub.receive()
    assert hub.states(DEAD) == (1, 0, 0)


def test_one_receive_moves_only_so_many_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "DEAD_LETTERS_MAX", 4)
    hub = hub_with_dead_letters(receives_max=1)
    hub.send(*[b"poison"] * 10)
    fail(hub, 1, count=10)
    hub.send(b"good")
    left = []
    while not (received := hub.receive(2)):
        assert hub.changed
        left.append(hub.states()[0])
    assert left == [7, 3]
    assert bodies(received) == [b"good"]
