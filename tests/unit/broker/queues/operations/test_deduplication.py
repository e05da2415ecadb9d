"""De-duplication: a message that is sent again within five minutes is taken for the first."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.queues.machines import MINUTE_MS, Q, bodies, machine_with

from lavant.broker.protocol.queue_config import DEDUPLICATION_MS
from lavant.broker.protocol.queues import DeleteQueue, DescribeQueue, MoveSome, Open, PurgeQueue, SendEntry, StartMove
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.broker.queues.operations.deduplication import name_of_content
from lavant.core.errors import LimitExceeded


def named(name: str, group: str = "", body: bytes = b"") -> SendEntry:
    return SendEntry(body, group=group, deduplication=name)


def test_a_second_message_of_the_same_name_is_answered_with_the_number_of_the_first() -> None:
    machine = machine_with(order="in-order")
    assert machine.try_to_send(named("m"), named("n"), named("m"), named("m", "other group")) == [1, 2, 1, 1]
    assert machine.try_to_send(named("m")) == [1]
    assert machine.states() == (2, 0, 0)
    assert (machine.figures().sent, machine.figures().deduplicated) == (2, 3)


def test_a_name_is_remembered_for_five_minutes_from_the_first_sending() -> None:
    machine = machine_with(order="in-order")
    machine.try_to_send(named("m"), now_ms=0)
    assert machine.try_to_send(named("m"), now_ms=DEDUPLICATION_MS - 1) == [1]
    assert machine.try_to_send(named("m"), now_ms=DEDUPLICATION_MS) == [2]
    assert machine.try_to_send(named("m"), now_ms=DEDUPLICATION_MS + 1) == [2]


def test_a_name_is_remembered_when_its_message_is_gone() -> None:
    machine = machine_with(order="in-order", retention_ms=MINUTE_MS)
    machine.try_to_send(named("m"), named("n"))
    machine.acknowledge(machine.receive()[0].receipt)
    assert machine.try_to_send(named("m"), named("n"), now_ms=2 * MINUTE_MS) == [1, 2]
    assert machine.states() == (0, 0, 0)


@pytest.mark.parametrize("settings", [{}, {"deduplicate_within_group": True}, {"deduplicate_by_content": True}])
@pytest.mark.parametrize("again", [[PurgeQueue(Q)], [DeleteQueue(Q)], [PurgeQueue(Q), PurgeQueue(Q)]])
def test_a_purge_and_a_second_queue_of_the_name_forget_the_names(
    again: list[PurgeQueue | DeleteQueue], settings: dict[str, Any]
) -> None:
    machine = machine_with(order="in-order", **settings)
    machine.try_to_send(named("m", "g"), named("", "g", b"body"))
    machine.receive()
    for request in again:
        machine.handle(request, 1)
    if isinstance(again[0], DeleteQueue):
        machine.create(Q, order="in-order", **settings)
    assert machine.try_to_send(named("m", "g"), named("", "g", b"body"), now_ms=2) == [3, 4]
    assert machine.states() == (2, 0, 0)
    assert machine.try_to_send(named("m", "g"), now_ms=3) == [3], "and remember those of what is sent then"


def test_by_the_old_rules_a_purge_remembers_the_names() -> None:
    machine = machine_with(order="in-order")
    machine.handle(Open(2, 0), 0)
    machine.try_to_send(named("m"))
    machine.handle(PurgeQueue(Q), 0)
    assert machine.try_to_send(named("m")) == [1]


def test_a_message_that_was_redriven_is_there_although_its_name_is_remembered() -> None:
    machine = machine_with("dead", order="in-order")
    machine.create(Q, order="in-order", dead_letters="dead", receives_max=1)
    machine.try_to_send(named("m"))
    machine.receive(visibility_ms=0)
    assert machine.receive() == []
    machine.handle(StartMove("dead"), 1)
    machine.handle(MoveSome(1, 10), 1)
    assert machine.try_to_send(named("m")) == [1]
    assert [delivery.receipt.number for delivery in machine.receive()] == [1]


def test_a_refused_message_is_not_remembered() -> None:
    machine = machine_with(order="in-order", depth_max=1)
    assert machine.try_to_send(named("m"), named("n"), named("m")) == [1, "QueueFull", 1]
    machine.acknowledge(machine.receive()[0].receipt)
    assert machine.try_to_send(named("n")) == [2]


def test_messages_without_a_name_are_never_duplicates() -> None:
    machine = machine_with(order="in-order")
    assert machine.send(b"same", b"same") == [1, 2]


def test_content_can_stand_for_a_name() -> None:
    machine = machine_with(order="in-order", deduplicate_by_content=True)
    assert machine.try_to_send(SendEntry(b"same"), SendEntry(b"same", b"attributes"), SendEntry(b"other")) == [1, 1, 2]
    assert machine.try_to_send(named("m", body=b"same"), named("m", body=b"third")) == [3, 3]
    (delivery,) = machine.receive()
    assert delivery.deduplication == name_of_content(b"same")
    assert name_of_content(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_each_group_can_have_names_of_its_own() -> None:
    machine = machine_with(order="in-order", deduplicate_within_group=True)
    assert machine.try_to_send(named("m", "a"), named("m", "b"), named("m", "a")) == [1, 2, 1]


def test_out_of_order_queues_do_not_look_for_duplicates() -> None:
    machine = machine_with()
    machine.send(b"same", b"same")
    assert bodies(machine.receive(2)) == [b"same", b"same"]


def test_only_so_many_names_are_remembered() -> None:
    machine = machine_with(order="in-order")
    machine.limits = QueueLimits(deduplication_names_max=2)
    machine.try_to_send(named("m"), named("n"), now_ms=0)
    with pytest.raises(LimitExceeded, match="remembers 2 names"):
        machine.try_to_send(named("o"))
    assert machine.try_to_send(named("o"), now_ms=DEDUPLICATION_MS) == [3]


def test_names_that_are_over_take_no_room_after_a_look_at_the_queue() -> None:
    machine = machine_with(order="in-order")
    for n in range(100):
        machine.try_to_send(named(str(n)), now_ms=n)
    names = machine._directory[Q].deduplication
    assert len(names) == 100
    machine.handle(DescribeQueue(Q), DEDUPLICATION_MS + 49)
    assert len(names) == 50
