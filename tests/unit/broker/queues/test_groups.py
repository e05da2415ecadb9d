"""Groups of in-order queues take little memory when they are small, and are the same groups then."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import pytest
from tests.unit.broker.queues.hubs import Hub, Q, bodies, hub_with, receipts

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue, MoveSome, PurgeQueue, StartMove
from lavant.broker.queues.ordering.in_order import NONE, InOrder, MessageGroup

DELAY_MS = 100


def groups(hub: Hub) -> dict[str, MessageGroup | int]:
    order = hub._directory[Q].order
    assert isinstance(order, InOrder)
    return order._groups


def delay(hub: Hub, delay_ms: int) -> None:
    hub.handle(ConfigureQueue(Q, QueueConfig(order="in-order", delay_ms=delay_ms)), hub.now_ms)


def move_in(hub: Hub, body: bytes, behind: bytes) -> None:
    """A message that comes from another queue, when one with a larger number is there."""
    hub.create("elsewhere", order="in-order")
    hub.send(body, queue="elsewhere", group="a")
    hub.send(behind, group="a")
    hub.handle(StartMove("elsewhere", Q), hub.now_ms)
    hub.handle(MoveSome(1, 1), hub.now_ms)


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


def grows_and_shrinks(hub: Hub) -> None:
    hub.send(b"1", b"2", b"3", group="a")
    hub.acknowledge(*receipts(hub.receive(2)))


def returns(hub: Hub) -> None:
    hub.send(b"3", group="a")
    hub.receive(visibility_ms=0)


def returns_before_one_that_came_meanwhile(hub: Hub) -> None:
    hub.send(b"2", group="a")
    (given,) = receipts(hub.receive())
    hub.send(b"3", group="a")
    hub.change((given, 0))
    hub.acknowledge(given)


def is_delayed(hub: Hub) -> None:
    delay(hub, DELAY_MS)
    hub.send(b"3", group="a")
    delay(hub, 0)


def is_delayed_behind_another(hub: Hub) -> None:
    hub.send(b"2", group="a")
    is_delayed(hub)
    hub.acknowledge(*receipts(hub.receive()))


def comes_after_a_purge(hub: Hub) -> None:
    is_delayed_behind_another(hub)
    hub.handle(PurgeQueue(Q), hub.now_ms)
    hub.send(b"3", group="a")


def stays_when_one_that_was_moved_there_is_done(hub: Hub) -> None:
    move_in(hub, b"2", behind=b"3")
    hub.acknowledge(*receipts(hub.receive()))


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
def hub(request: pytest.FixtureRequest) -> Hub:
    """Of group a, only message 3 is left."""
    hub = hub_with(order="in-order")
    history: Callable[[Hub], None] = request.param
    history(hub)
    return hub


@pytest.fixture(params=["as it is", "restored"], ids=str)
def either(request: pytest.FixtureRequest, hub: Hub) -> Hub:
    """The same, also after a restart."""
    if request.param == "as it is":
        return hub
    fresh = Hub.restore(hub.snapshot())
    assert isinstance(fresh, Hub)
    return fresh


def test_a_group_of_one_message_is_only_its_number(either: Hub) -> None:
    (message,) = either.peek()
    if message.receive_count:  # it came back, and has a turn to remember
        assert list(groups(either)) == ["a"]
    else:
        assert groups(either) == {"a": message.number}


def test_its_message_is_received_once_when_it_is_visible(either: Hub) -> None:
    delayed = either.states() == (0, 0, 1)
    assert bodies(either.receive(5, now_ms=DELAY_MS - 1)) == ([] if delayed else [b"3"])
    assert bodies(either.receive(5, now_ms=DELAY_MS)) == ([b"3"] if delayed else [])


def test_another_message_comes_behind_it(either: Hub) -> None:
    either.send(b"4", group="a")
    either.send(b"5", group="b")
    assert bodies(either.receive(5, now_ms=DELAY_MS)) == [b"3", b"4", b"5"]


def test_another_message_waits_while_it_is_delayed_or_in_flight(either: Hub) -> None:
    given = receipts(either.receive())
    either.send(b"4", group="a")
    assert either.receive(5) == []
    if given:
        either.acknowledge(*given)
    assert bodies(either.receive(5, now_ms=DELAY_MS)) == ([b"4"] if given else [b"3", b"4"])


def test_nothing_is_left_of_a_group_whose_only_message_expires(either: Hub) -> None:
    either.advance(either._directory[Q].config.retention_ms + 1000)
    assert groups(either) == {}
    either.send(b"4", group="a")
    assert bodies(either.receive(5)) == [b"4"]


def test_all_messages_of_a_group_have_the_same_text_for_its_name() -> None:
    hub = hub_with(order="in-order")
    for n in range(4):
        hub.send(b"", group="".join(["group", " a"]))
        assert len({id(message.group) for message in hub._directory[Q].messages.values()}) == 1, n


def test_a_message_from_elsewhere_goes_ahead_of_one_that_is_delayed() -> None:
    hub = hub_with(order="in-order", delay_ms=DELAY_MS)
    move_in(hub, b"1", behind=b"2")
    assert bodies(hub.receive(5, visibility_ms=DELAY_MS)) == [b"1"]
    assert bodies(hub.receive(5, now_ms=DELAY_MS)) == [b"1", b"2"]
