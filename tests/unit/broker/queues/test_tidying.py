"""What left a queue does not stay in its heaps and lines, however long it runs."""

from __future__ import annotations

from sys import getsizeof

import pytest
from tests.unit.broker.queues.machines import MINUTE_MS, Q, QueueMachine, machine_with, receipts

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, DeleteQueue, MoveSome, StartMove
from lavant.broker.queues.in_flight import STALE_MIN
from lavant.broker.queues.ordering.in_order import InOrder
from lavant.broker.queues.ordering.out_of_order import OutOfOrder
from lavant.broker.queues.ordering.sorted_numbers import CHUNK
from lavant.broker.queues.queue import TIDY_EVERY

ENOUGH = 20 * TIDY_EVERY


def sizes(machine: QueueMachine) -> list[int]:
    """Of everything that keeps an order in the queue, and in the machine."""
    queue = machine._directory[Q]
    assert isinstance(queue.order, OutOfOrder | InOrder)
    return [
        len(queue.hidden),
        len(queue._arrivals),
        len(queue._numbers),
        len(queue.order._visible if isinstance(queue.order, OutOfOrder) else queue.order._fresh),
        len(machine._timers._heap),
    ]


def check(machine: QueueMachine, depth: int) -> None:
    assert max(sizes(machine)) <= 2 * depth + STALE_MIN + 2 * TIDY_EVERY


def test_messages_that_come_and_go_leave_nothing_behind() -> None:
    for order in ("out-of-order", "in-order"):
        machine = machine_with(order=order)
        for n in range(ENOUGH // 10):
            machine.send(*[b""] * 10, group=str(n) if order == "in-order" else "")
            machine.acknowledge(*receipts(machine.receive(10)))
            check(machine, 0)


@pytest.mark.parametrize("staying", [1, 3 * CHUNK])
@pytest.mark.parametrize(("sent", "acknowledged"), [(1, 1), (10, 10), (10, 1000), (1000, 1000)])
def test_messages_behind_others_that_stay_leave_nothing_behind(staying: int, sent: int, acknowledged: int) -> None:
    machine = machine_with()
    machine.send(*[b"stays"] * staying)
    machine.receive(staying)
    for _ in range(max(10, ENOUGH // acknowledged)):
        for _ in range(acknowledged // sent):
            machine.send(*[b""] * sent)
        machine.acknowledge(*receipts(machine.receive(acknowledged)))
        check(machine, staying)
    assert machine.states() == (0, staying, 0)


def test_leases_that_are_extended_again_and_again_leave_nothing_behind() -> None:
    machine = machine_with()
    machine.send(b"a", b"b")
    first, second = receipts(machine.receive(2))
    for n in range(ENOUGH):
        assert machine.change((first, 30_000 + n % 50), (second, 30_000 + n % 2)) == {}
        check(machine, 2)
    assert machine.states() == (0, 2, 0)
    assert len(machine.receive(5, now_ms=10 * MINUTE_MS)) == 2


def test_messages_that_nobody_receives_leave_nothing_behind_when_they_expire() -> None:
    for order in ("out-of-order", "in-order"):
        machine = machine_with(order=order, retention_ms=MINUTE_MS)
        for n in range(ENOUGH // 10):
            machine.send(*[b""] * 10, now_ms=n * MINUTE_MS)
            check(machine, 10)
            assert machine.states() == (10, 0, 0)


def test_messages_acknowledged_late_leave_nothing_behind() -> None:
    machine = machine_with()
    machine.send(b"stays")
    for _ in range(ENOUGH // 10):
        machine.send(*[b""] * 10)
        late = [receipt for receipt in receipts(machine.receive(100, visibility_ms=0)) if receipt.number > 1]
        machine.acknowledge(*late)
        check(machine, 1)
    assert machine.states() == (1, 0, 0)


def test_tidying_keeps_the_order_of_arrival() -> None:
    machine = machine_with()
    machine.create("source")
    machine.send(b"moved here later", queue="source")
    machine.send(b"first here", now_ms=1000)
    machine.handle(StartMove("source", Q), 2000)
    machine.handle(MoveSome(1, 1), 2000)
    machine.receive(2)
    for _ in range(ENOUGH // 10):
        machine.send(*[b""] * 10)
        machine.acknowledge(*receipts(machine.receive(10)))
    assert machine.states() == (0, 2, 0)
    assert machine.figures().oldest_sent_ms == 1000
    assert [message.number for message in machine.peek()] == [1, 2]


def test_groups_that_come_and_go_leave_nothing_behind() -> None:
    machine = machine_with(order="in-order")
    for n in range(ENOUGH):
        machine.send(b"", group=str(n))
        machine.acknowledge(*receipts(machine.receive()))
    order = machine._directory[Q].order
    assert isinstance(order, InOrder)
    assert order._groups == {}


def test_queues_that_come_and_go_leave_nothing_behind() -> None:
    machine = machine_with()
    for n in range(ENOUGH):
        machine.handle(CreateQueue(f"q{n}", QueueConfig()), 0)
        machine.send(b"", queue=f"q{n}")
        machine.receive(queue=f"q{n}", visibility_ms=ENOUGH - n)
        machine.handle(DeleteQueue(f"q{n}"), 0)
    check(machine, 0)
    assert machine.wakeup_ms() is None


def test_a_queue_that_was_long_gives_its_memory_back() -> None:
    machine = machine_with()
    small = getsizeof(machine._directory[Q].messages)
    machine.send(*[b""] * 1000)
    assert getsizeof(machine._directory[Q].messages) > 20_000
    machine.acknowledge(*receipts(machine.receive(1000)))
    assert getsizeof(machine._directory[Q].messages) == small


def test_a_body_is_not_kept_when_its_message_is_gone() -> None:
    machine = machine_with()
    machine.send(b"stays", bytes(1000))
    _, second = machine.receive(2)
    gone = machine._directory[Q].messages[2]
    machine.acknowledge(second.receipt)
    assert (gone.body, gone.attributes) == (b"", b"")
    assert second.body == bytes(1000)
