"""Groups of in-order queues take little memory when they are small, and are the same groups then."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import pytest
from tests.unit.broker.queues.machines import Q, QueueMachine, bodies, machine_with, receipts

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue, MoveSome, PurgeQueue, StartMove
from lavant.broker.queues.ordering.in_order import NONE, InOrder, MessageGroup

DELAY_MS = 100


def groups(machine: QueueMachine) -> dict[str, MessageGroup | int]:
    order = machine._directory[Q].order
    assert isinstance(order, InOrder)
    return order._groups


def delay(machine: QueueMachine, delay_ms: int) -> None:
    machine.handle(ConfigureQueue(Q, QueueConfig(order="in-order", delay_ms=delay_ms)), machine.now_ms)


def move_in(machine: QueueMachine, body: bytes, behind: bytes) -> None:
    """A message that comes from another queue, when one with a larger number is there."""
    machine.create("elsewhere", order="in-order")
    machine.send(body, queue="elsewhere", group="a")
    machine.send(behind, group="a")
    machine.handle(StartMove("elsewhere", Q), machine.now_ms)
    machine.handle(MoveSome(1, 1), machine.now_ms)


def test_numbers_leave_a_group_in_order_however_they_came_and_went() -> None:
    for numbers, pops in product(permutations(range(1, 6)), product(range(3), repeat=5)):
        group, left = MessageGroup("a"), list[int]()
        for number, count in zip(numbers, pops, strict=True):
            group.push(number)
            left = sorted([*left, number])
            for _ in range(count):
                assert group.first == (left[0] if left else NONE)
                group.pop()
                left = left[1:]
        while left:
            assert group.first == left.pop(0)
            group.pop()
        assert (group.first, group.rest) == (NONE, NONE)


def test_a_group_keeps_a_list_only_while_it_has_three_messages() -> None:
    group = MessageGroup("a")
    for number, is_list in [(1, False), (2, False), (3, True), (4, True)]:
        group.push(number)
        assert isinstance(group.rest, list) == is_list
    for is_list in [True, False, False, False]:
        group.pop()
        assert isinstance(group.rest, list) == is_list


def grows_and_shrinks(machine: QueueMachine) -> None:
    machine.send(b"1", b"2", b"3", group="a")
    machine.acknowledge(*receipts(machine.receive(2)))


def returns(machine: QueueMachine) -> None:
    machine.send(b"3", group="a")
    machine.receive(visibility_ms=0)


def returns_before_one_that_came_meanwhile(machine: QueueMachine) -> None:
    machine.send(b"2", group="a")
    (given,) = receipts(machine.receive())
    machine.send(b"3", group="a")
    machine.change((given, 0))
    machine.acknowledge(given)


def is_delayed(machine: QueueMachine) -> None:
    delay(machine, DELAY_MS)
    machine.send(b"3", group="a")
    delay(machine, 0)


def is_delayed_behind_another(machine: QueueMachine) -> None:
    machine.send(b"2", group="a")
    is_delayed(machine)
    machine.acknowledge(*receipts(machine.receive()))


def comes_after_a_purge(machine: QueueMachine) -> None:
    is_delayed_behind_another(machine)
    machine.handle(PurgeQueue(Q), machine.now_ms)
    machine.send(b"3", group="a")


def stays_when_one_that_was_moved_there_is_done(machine: QueueMachine) -> None:
    move_in(machine, b"2", behind=b"3")
    machine.acknowledge(*receipts(machine.receive()))


HISTORIES = [
    grows_and_shrinks,
    returns,
    returns_before_one_that_came_meanwhile,
    is_delayed,
    is_delayed_behind_another,
    comes_after_a_purge,
    stays_when_one_that_was_moved_there_is_done,
]


@pytest.fixture(params=HISTORIES, ids=lambda history: history.__name__)
def machine(request: pytest.FixtureRequest) -> QueueMachine:
    """Of group a, only message 3 is left."""
    machine = machine_with(order="in-order")
    history: Callable[[QueueMachine], None] = request.param
    history(machine)
    return machine


@pytest.fixture(params=["as it is", "restored"], ids=str)
def either(request: pytest.FixtureRequest, machine: QueueMachine) -> QueueMachine:
    """The same, also after a restart."""
    if request.param == "as it is":
        return machine
    fresh = QueueMachine.restore(machine.snapshot())
    assert isinstance(fresh, QueueMachine)
    return fresh


def test_a_group_of_one_message_is_only_its_number(either: QueueMachine) -> None:
    (message,) = either.peek()
    if message.receive_count:  # it came back, and has a turn to remember
        assert list(groups(either)) == ["a"]
    else:
        assert groups(either) == {"a": message.number}


def test_its_message_is_received_once_when_it_is_visible(either: QueueMachine) -> None:
    delayed = either.states() == (0, 0, 1)
    assert bodies(either.receive(5, now_ms=DELAY_MS - 1)) == ([] if delayed else [b"3"])
    assert bodies(either.receive(5, now_ms=DELAY_MS)) == ([b"3"] if delayed else [])


def test_another_message_comes_behind_it(either: QueueMachine) -> None:
    either.send(b"4", group="a")
    either.send(b"5", group="b")
    assert bodies(either.receive(5, now_ms=DELAY_MS)) == [b"3", b"4", b"5"]


def test_another_message_waits_while_it_is_delayed_or_in_flight(either: QueueMachine) -> None:
    given = receipts(either.receive())
    either.send(b"4", group="a")
    assert either.receive(5) == []
    if given:
        either.acknowledge(*given)
    assert bodies(either.receive(5, now_ms=DELAY_MS)) == ([b"4"] if given else [b"3", b"4"])


def test_nothing_is_left_of_a_group_whose_only_message_expires(either: QueueMachine) -> None:
    either.advance(either._directory[Q].config.retention_ms + 1000)
    assert groups(either) == {}
    either.send(b"4", group="a")
    assert bodies(either.receive(5)) == [b"4"]


def test_all_messages_of_a_group_have_the_same_text_for_its_name() -> None:
    machine = machine_with(order="in-order")
    for n in range(4):
        machine.send(b"", group="".join(["group", " a"]))
        assert len({id(message.group) for message in machine._directory[Q].messages.values()}) == 1, n


def test_a_message_from_elsewhere_goes_ahead_of_one_that_is_delayed() -> None:
    machine = machine_with(order="in-order", delay_ms=DELAY_MS)
    move_in(machine, b"1", behind=b"2")
    assert bodies(machine.receive(5, visibility_ms=DELAY_MS)) == [b"1"]
    assert bodies(machine.receive(5, now_ms=DELAY_MS)) == [b"1", b"2"]
