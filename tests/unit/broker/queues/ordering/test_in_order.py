"""In-order queues: a group's messages start one after the other, and groups go on side by side."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.machines import Q, QueueMachine, bodies, machine_with, receipts

from lavant.broker.protocol.queue_config import MESSAGE_BYTES_MAX, QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue


@pytest.fixture
def machine() -> QueueMachine:
    return machine_with(order="in-order", visibility_ms=100)


def test_one_receive_takes_several_of_a_group_in_order(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", b"3", group="a")
    assert bodies(machine.receive(2)) == [b"1", b"2"]


def test_a_group_waits_until_all_its_messages_in_flight_are_done(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", b"3", group="a")
    first, second = machine.receive(2)
    assert machine.receive() == []
    machine.acknowledge(second.receipt)
    assert machine.receive() == []
    assert not machine.visible(Q, 0)
    machine.acknowledge(first.receipt)
    assert bodies(machine.receive()) == [b"3"]


def test_another_group_goes_on_meanwhile(machine: QueueMachine) -> None:
    machine.send(b"a1", group="a")
    machine.send(b"b1", group="b")
    machine.send(b"a2", group="a")
    machine.send(b"b2", group="b")
    assert bodies(machine.receive()) == [b"a1"]
    assert bodies(machine.receive(5)) == [b"b1", b"b2"]


def test_the_group_with_the_oldest_message_comes_first_and_is_taken_as_a_whole(machine: QueueMachine) -> None:
    for group in ["b", "a", "b", "a", "c"]:
        machine.send(group.encode(), group=group)
    assert bodies(machine.receive(5)) == [b"b", b"b", b"a", b"a", b"c"]


def test_a_message_whose_lease_is_over_takes_its_old_place(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", b"3", group="a")
    machine.receive(2)
    assert bodies(machine.receive(5, now_ms=100)) == [b"1", b"2", b"3"]


def test_a_message_that_is_given_back_waits_for_the_others_in_flight(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", b"3", group="a")
    first, second, third = receipts(machine.receive(3))
    machine.change((second, 0))
    assert machine.receive() == []
    machine.acknowledge(first, third)
    assert bodies(machine.receive(5)) == [b"2"]


def test_a_late_acknowledgement_of_a_message_in_the_middle_leaves_the_others_in_order(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", b"3", b"4", group="a")
    given = receipts(machine.receive(3))
    machine.advance(100)
    assert machine.acknowledge(given[1]) == {}
    assert bodies(machine.receive(5)) == [b"1", b"3", b"4"]


def test_a_late_acknowledgement_of_the_first_message_lets_the_second_start(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", group="a")
    (given,) = receipts(machine.receive())
    machine.advance(100)
    machine.acknowledge(given)
    assert bodies(machine.receive(5)) == [b"2"]


def test_a_delayed_message_holds_up_those_behind_it(machine: QueueMachine) -> None:
    machine.handle(ConfigureQueue(Q, QueueConfig(order="in-order", delay_ms=100)), 0)
    machine.send(b"a1", group="a")
    machine.handle(ConfigureQueue(Q, QueueConfig(order="in-order")), 0)
    machine.send(b"a2", group="a")
    machine.send(b"b1", group="b")
    assert machine.states() == (2, 0, 1)
    assert bodies(machine.receive(5)) == [b"b1"]
    assert not machine.visible(Q, 99)
    assert bodies(machine.receive(5, now_ms=100)) == [b"a1", b"a2"]


def test_a_delayed_message_is_not_taken_along_with_those_before_it(machine: QueueMachine) -> None:
    machine.send(b"1", group="a")
    machine.handle(ConfigureQueue(Q, QueueConfig(order="in-order", delay_ms=100)), 0)
    machine.send(b"2", group="a")
    assert bodies(machine.receive(5, visibility_ms=10)) == [b"1"]
    assert bodies(machine.receive(5, now_ms=99, visibility_ms=10)) == [b"1"]
    assert bodies(machine.receive(5, now_ms=109)) == [b"1", b"2"]


def test_a_message_without_a_group_is_in_the_group_without_a_name(machine: QueueMachine) -> None:
    machine.send(b"1", b"2")
    (given,) = receipts(machine.receive())
    assert machine.receive() == []
    machine.acknowledge(given)
    assert bodies(machine.receive()) == [b"2"]


def test_an_answer_that_is_full_leaves_the_next_message_first(machine: QueueMachine) -> None:
    for n in range(18):
        machine.send(bytes([n]) * MESSAGE_BYTES_MAX, group="a" if n < 10 else "b")
    taken = machine.receive(18)
    assert [delivery.body[0] for delivery in taken] == list(range(16))
    machine.acknowledge(*receipts(taken))
    assert [delivery.body[0] for delivery in machine.receive(18)] == [16, 17]


def test_a_group_that_did_not_fit_into_an_answer_is_next(machine: QueueMachine) -> None:
    for n in range(17):
        machine.send(bytes([n]) * MESSAGE_BYTES_MAX, group=str(n))
    assert len(machine.receive(18)) == 16
    assert [delivery.body[0] for delivery in machine.receive(18)] == [16]


def test_an_expired_message_lets_those_behind_it_start() -> None:
    machine = machine_with(order="in-order", retention_ms=60_000, visibility_ms=10**6)
    machine.send(b"1", group="a")
    machine.send(b"2", group="a", now_ms=1000)
    machine.receive()
    assert machine.receive(now_ms=59_999) == []
    assert bodies(machine.receive(now_ms=60_000)) == [b"2"]


def test_many_groups_and_messages_keep_their_order(machine: QueueMachine) -> None:
    for n in range(300):
        machine.send(bytes([n // 7 % 50, n % 256]), group=str(n % 7))
    seen: dict[str, list[int]] = {}
    while deliveries := machine.receive(10):
        for delivery in deliveries:
            seen.setdefault(delivery.group, []).append(delivery.receipt.number)
        machine.acknowledge(*receipts(deliveries))
    assert sum(map(len, seen.values())) == 300
    assert all(numbers == sorted(numbers) for numbers in seen.values())
