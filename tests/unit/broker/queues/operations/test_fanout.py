"""The same bodies into many queues."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.broker.queues.machines import QueueMachine

from lavant.broker.protocol.queues import DeleteQueue, Done, FanOut
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.core.errors import InvalidValue, LimitExceeded, QueueFull, StorageFull


def spread(bodies: list[bytes], lists: dict[int, list[int]]) -> FanOut:
    """Which queue, by its number, gets which bodies."""
    ends = np.cumsum([len(places) for places in lists.values()])
    places = [place for own in lists.values() for place in own]
    return FanOut(bodies, *(np.array(values, "<u4").tobytes() for values in (list(lists), ends, places)))


def machine_with(*queues: str, **settings: int) -> QueueMachine:
    machine = QueueMachine()
    for queue in queues:
        machine.create(queue, **settings)
    return machine


def bodies_of(machine: QueueMachine, queue: str) -> list[bytes]:
    return [message.body for message in machine.peek(queue=queue)]


def test_each_queue_gets_its_own_in_order() -> None:
    machine = machine_with("a", "b", "c")
    assert machine.handle(spread([b"x", b"y", b"z"], {3: [0, 2], 1: [1, 2]}), 5) == Done()
    assert machine.changed
    assert (bodies_of(machine, "a"), bodies_of(machine, "b"), bodies_of(machine, "c")) == (
        [b"y", b"z"],
        [],
        [b"x", b"z"],
    )
    assert len({message.number for queue in "ac" for message in machine.peek(queue=queue)}) == 4
    assert (machine.figures("a").sent, machine.bytes_held) == (2, 4)


def test_a_body_is_held_once_however_many_queues_it_is_in() -> None:
    machine = machine_with("a", "b")
    machine.handle(spread([bytes(1000)], {1: [0], 2: [0]}), 0)
    [first], [second] = machine.receive(queue="a"), machine.receive(queue="b")
    assert first.body is second.body


def test_a_queue_that_is_gone_gets_nothing_and_neither_does_its_successor() -> None:
    machine = machine_with("a", "b")
    machine.handle(DeleteQueue("a"), 0)
    machine.create("a")
    machine.handle(spread([b"x"], {1: [0], 2: [0]}), 0)
    assert (bodies_of(machine, "a"), bodies_of(machine, "b")) == ([], [b"x"])
    assert machine.serial("a") == 3


def test_nobody_gets_anything_if_one_has_no_room() -> None:
    machine = machine_with("a", "b", depth_max=2)
    machine.send(b"one", queue="b")
    with pytest.raises(QueueFull, match="'b' is full"):
        machine.handle(spread([b"x", b"y"], {1: [0, 1], 2: [0, 1]}), 0)
    assert not machine.changed
    assert (bodies_of(machine, "a"), bodies_of(machine, "b")) == ([], [b"one"])
    machine.handle(spread([b"x", b"y"], {1: [0, 1], 2: [1]}), 0)
    assert bodies_of(machine, "b") == [b"one", b"y"]


def test_what_is_too_large_for_a_queue_is_refused() -> None:
    machine = machine_with("a", message_bytes_max=1024)
    machine.handle(spread([bytes(1024), bytes(1025)], {1: [0]}), 0)
    with pytest.raises(LimitExceeded, match="1025 bytes"):
        machine.handle(spread([bytes(1024), bytes(1025)], {1: [0, 1]}), 0)


def test_memory_is_bounded() -> None:
    machine = machine_with("a", "b")
    machine.limits = QueueLimits(memory_max=machine.memory_held + 2 * MESSAGE + 10)
    machine.handle(spread([b"12345"], {1: [0], 2: [0]}), 0)
    with pytest.raises(StorageFull):
        machine.handle(spread([b"1"], {1: [0]}), 0)


def test_a_queue_that_delays_delays_these_too() -> None:
    machine = machine_with("a", delay_ms=1000)
    machine.handle(spread([b"x"], {1: [0]}), 5)
    assert machine.receive(queue="a", now_ms=1004) == []
    assert [each.body for each in machine.receive(queue="a", now_ms=1005)] == [b"x"]


@pytest.mark.parametrize(
    "wrong",
    [
        FanOut([b"x"], b"123", b"", b""),
        FanOut([b"x"], bytes(4), b"", b""),
        FanOut([b"x"], b"\1\0\0\0", b"\1\0\0\0", b""),
        spread([b"x"], {1: [1]}),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(wrong: FanOut) -> None:
    machine = machine_with("a")
    with pytest.raises(InvalidValue):
        machine.handle(wrong, 0)
    assert bodies_of(machine, "a") == []


def test_numbers_of_queues_outlive_a_snapshot() -> None:
    machine = machine_with("a", "b")
    machine.handle(DeleteQueue("a"), 0)
    again = QueueMachine.restore(machine.snapshot())
    assert again.names_of([1, 2]) == ["b"]
    assert isinstance(again, QueueMachine)
    again.create("c")
    assert again.serial("c") == 3
