"""Peeking: a look at messages in any state, which changes nothing."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.machines import Q, QueueMachine, machine_with, snapshot

from lavant.broker.protocol.queue_config import MESSAGE_BYTES_MAX
from lavant.broker.protocol.queues import MoveSome, Peek, StartMove
from lavant.core.errors import InvalidValue, LimitExceeded, UnknownQueue


def test_messages_are_shown_by_number_with_their_states() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a", b"b", attributes=b"with")
    machine.send(b"c", delay_ms=50)
    machine.receive(now_ms=10)
    shown = [(m.number, m.state, m.visible_ms, m.body, m.attributes, m.receive_count) for m in machine.peek()]
    assert shown == [
        (1, "in flight", 110, b"a", b"with", 1),
        (2, "visible", 0, b"b", b"with", 0),
        (3, "delayed", 50, b"c", b"", 0),
    ]


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_a_look_changes_nothing_and_leases_nothing(order: str) -> None:
    machine = machine_with(order=order)
    machine.send(*[b""] * 10)
    machine.receive(3)
    before = snapshot(machine)
    for _ in range(3):
        assert len(machine.peek(count=100)) == 10
        assert not machine.changed
    assert snapshot(machine) == before
    assert machine.states() == (7, 3, 0)


def test_a_long_queue_is_shown_page_by_page() -> None:
    machine = machine_with()
    for _ in range(30):
        machine.send(*[b""] * 100)
    numbers: list[int] = []
    while page := machine.peek(count=700, after=numbers[-1] if numbers else 0):
        numbers += [message.number for message in page]
    assert numbers == list(range(1, 3001))
    assert [message.number for message in machine.peek(count=2, after=1999)] == [2000, 2001]


def test_messages_that_are_gone_are_passed_over() -> None:
    machine = machine_with()
    for _ in range(30):
        machine.send(*[b""] * 100)
    for _ in range(29):
        machine.acknowledge(*[delivery.receipt for delivery in machine.receive(100)])
    assert [message.number for message in machine.peek(count=2)] == [2901, 2902]
    assert [message.number for message in machine.peek(count=2, after=1000)] == [2901, 2902]
    machine.send(b"new")
    assert machine.peek(after=3000)[0].number == 3001


def test_messages_that_were_moved_here_are_in_their_places() -> None:
    machine = QueueMachine()
    machine.create(Q)
    machine.create("source")
    for n in range(6):
        machine.send(b"", queue=[Q, "source"][n % 2])
    machine.handle(StartMove("source", Q), 0)
    machine.handle(MoveSome(1, 2), 0)
    assert [message.number for message in machine.peek()] == [1, 2, 3, 4, 5]
    assert [message.number for message in machine.peek(after=2)] == [3, 4, 5]


def test_a_page_is_no_larger_than_a_batch_may_be() -> None:
    machine = machine_with()
    for _ in range(20):
        machine.send(bytes(MESSAGE_BYTES_MAX))
    assert len(machine.peek(count=20)) == 16


def test_a_look_is_refused() -> None:
    machine = machine_with()
    for request, error in [
        (Peek("nobody"), UnknownQueue),
        (Peek(Q, 0), InvalidValue),
        (Peek(Q, 1001), LimitExceeded),
    ]:
        with pytest.raises(error):
            machine.handle(request, 0)
