"""Creating, configuring, tagging, purging, deleting and listing queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.queues.machines import Q, QueueMachine, machine_with

from lavant.broker.protocol.queue_config import DAY_MS, QueueConfig
from lavant.broker.protocol.queues import (
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Described,
    DescribeQueue,
    Listed,
    ListQueues,
    ListSources,
    Open,
    PurgeQueue,
    QueueCreated,
    TagQueue,
)
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, QueueExists, UnknownQueue

NEW = QueueConfig()


def described(machine: QueueMachine, queue: str = Q) -> Described:
    return machine.ask(DescribeQueue(queue), Described)


def test_a_queue_is_created_once() -> None:
    machine = QueueMachine()
    assert machine.handle(CreateQueue(Q, NEW, {"a": "b"}), 7) == QueueCreated(is_new=True)
    assert machine.changed
    machine.send(b"stays")
    assert machine.handle(CreateQueue(Q, NEW, {"c": "d"}), 9) == QueueCreated(is_new=False)
    assert not machine.changed
    answer = described(machine)
    assert (answer.config, answer.tags, answer.created_ms, answer.changed_ms) == (NEW, {"a": "b"}, 7, 7)
    assert answer.figures.visible == 1


def test_a_name_that_is_taken_by_another_queue_says_what_differs() -> None:
    machine = machine_with(visibility_ms=5000)
    with pytest.raises(QueueExists, match="'orders' exists already with visibility_ms 5000 instead of 30000"):
        machine.handle(CreateQueue(Q, NEW), 0)
    assert described(machine).config.visibility_ms == 5000


def test_settings_and_tags_can_be_changed() -> None:
    machine = machine_with()
    changed = QueueConfig(visibility_ms=1, labels={"policy": "…"})
    machine.handle(ConfigureQueue(Q, changed), 5)
    machine.handle(TagQueue(Q, {"team": "a"}), 6)
    answer = described(machine)
    assert (answer.config, answer.tags, answer.created_ms, answer.changed_ms) == (changed, {"team": "a"}, 0, 5)
    machine.handle(TagQueue(Q, {}), 6)
    assert described(machine).tags == {}


def test_the_order_of_a_queue_cannot_be_changed() -> None:
    machine = machine_with()
    with pytest.raises(InvalidValue, match="'orders' is out-of-order and cannot become in-order"):
        machine.handle(ConfigureQueue(Q, QueueConfig(order="in-order")), 0)


def test_a_deleted_queue_is_gone_with_all_its_messages() -> None:
    machine = machine_with()
    machine.send(b"a", b"b")
    (delivery,) = machine.receive()
    machine.handle(DeleteQueue(Q), 0)
    with pytest.raises(UnknownQueue, match="no queue 'orders'; create it first"):
        machine.receive()
    machine.create(Q)
    assert machine.figures().sent == 0
    assert machine.acknowledge(delivery.receipt) == {}
    assert machine.send(b"c") == [3]


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_a_purged_queue_is_empty_and_goes_on(order: str) -> None:
    machine = machine_with(order=order)
    machine.send(b"a", b"b", b"c")
    (delivery,) = machine.receive()
    machine.handle(PurgeQueue(Q), 0)
    assert machine.states() == (0, 0, 0)
    assert machine.peek() == []
    figures = machine.figures()
    assert (figures.sent, figures.received, figures.acknowledged, figures.oldest_sent_ms) == (3, 1, 0, None)
    assert machine.acknowledge(delivery.receipt) == {}
    machine.send(b"d")
    assert [each.body for each in machine.receive(5, now_ms=100_000)] == [b"d"]


def test_queues_are_listed_by_name_page_by_page() -> None:
    machine = QueueMachine()
    for name in ["b1", "a", "c", "b3", "b2"]:
        machine.create(name)
    machine.handle(DeleteQueue("b2"), 0)
    machine.create("b0")

    def names(prefix: str = "", after: str = "", count: int = 1000) -> list[str]:
        return machine.ask(ListQueues(prefix, after, count), Listed).queues

    assert names() == ["a", "b0", "b1", "b3", "c"]
    assert names("b") == ["b0", "b1", "b3"]
    assert names("b", count=2) == ["b0", "b1"]
    assert names("b", after="b1") == ["b3"]
    assert names("b", after="c") == []
    assert names(after="b2", count=1) == ["b3"]
    assert names("x") == []
    for count in (0, 1001):
        with pytest.raises(InvalidValue):
            names(count=count)


def test_a_dead_letter_queue_knows_its_sources() -> None:
    machine = machine_with("dead")
    for name in ["b", "a"]:
        machine.create(name, dead_letters="dead", receives_max=3)
    assert machine.ask(ListSources("dead"), Listed).queues == ["a", "b"]
    assert machine.ask(ListSources("a"), Listed).queues == []
    machine.handle(ConfigureQueue("a", NEW), 0)
    machine.handle(DeleteQueue("b"), 0)
    assert machine.ask(ListSources("dead"), Listed).queues == []
    machine.handle(DeleteQueue("dead"), 0)
    with pytest.raises(UnknownQueue):
        machine.handle(ListSources("dead"), 0)


@pytest.mark.parametrize(
    ("name", "order", "words"),
    [
        ("nobody", "out-of-order", "no queue 'nobody' for dead letters; create it first"),
        ("dead", "in-order", "both must be the same"),
        (Q, "out-of-order", "its own dead-letter queue"),
    ],
)
def test_dead_letters_need_another_queue_of_the_same_order(name: str, order: Any, words: str) -> None:
    machine = machine_with("dead")
    config = QueueConfig(order=order, dead_letters=name, receives_max=1)
    with pytest.raises(InvalidValue, match=words):
        machine.handle(CreateQueue(Q, config), 0)
    machine.create(Q, order=order)
    with pytest.raises(InvalidValue, match=words):
        machine.handle(ConfigureQueue(Q, config), 0)
    assert described(machine).config.dead_letters is None


def test_a_queue_can_be_configured_and_created_again_while_its_dead_letter_queue_is_gone() -> None:
    machine = machine_with("dead")
    config = QueueConfig(dead_letters="dead", receives_max=1)
    machine.handle(CreateQueue(Q, config), 0)
    machine.handle(DeleteQueue("dead"), 0)
    assert machine.handle(CreateQueue(Q, config), 0) == QueueCreated(is_new=False)
    machine.handle(ConfigureQueue(Q, QueueConfig(dead_letters="dead", receives_max=2)), 0)
    assert described(machine).config.receives_max == 2


def test_there_are_only_so_many_queues() -> None:
    machine = QueueMachine(QueueLimits(queues_max=2))
    machine.create("a")
    machine.create("b")
    with pytest.raises(LimitExceeded, match="2 queues, which is the limit"):
        machine.create("c")
    machine.create("b")
    machine.handle(DeleteQueue("a"), 0)
    machine.create("c")


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "/a", "a/", "ä", "a\n", "x" * 81])
def test_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="queue's name"):
        QueueMachine().create(name)


@pytest.mark.parametrize("name", ["a", "A-b_c.fifo", "x" * 80, "0"])
def test_a_name_is_accepted(name: str) -> None:
    QueueMachine().create(name)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"order": "sideways"}, InvalidValue, "must be 'out-of-order' or 'in-order', got 'sideways'"),
        ({"visibility_ms": -1}, InvalidValue, "visibility_ms must be between 0 and 43200000, got -1"),
        ({"visibility_ms": DAY_MS}, LimitExceeded, "visibility_ms"),
        ({"delay_ms": -1}, InvalidValue, "delay_ms"),
        ({"delay_ms": 900_001}, LimitExceeded, "delay_ms"),
        ({"retention_ms": 59_999}, InvalidValue, "retention_ms"),
        ({"retention_ms": 14 * DAY_MS + 1}, LimitExceeded, "retention_ms"),
        ({"wait_ms": -1}, InvalidValue, "wait_ms"),
        ({"wait_ms": 20_001}, LimitExceeded, "wait_ms"),
        ({"message_bytes_max": 1023}, InvalidValue, "message_bytes_max"),
        ({"message_bytes_max": (1 << 20) + 1}, LimitExceeded, "message_bytes_max"),
        ({"depth_max": 0}, InvalidValue, "depth_max"),
        ({"depth_max": 100_000_001}, LimitExceeded, "depth_max"),
        ({"in_flight_max": 0}, InvalidValue, "in_flight_max"),
        ({"in_flight_max": 100_000_001}, LimitExceeded, "in_flight_max"),
        ({"dead_letters": "dead"}, InvalidValue, "go together"),
        ({"receives_max": 3}, InvalidValue, "go together"),
        ({"dead_letters": "dead", "receives_max": 0}, InvalidValue, "receives_max"),
        ({"dead_letters": "dead", "receives_max": 1001}, LimitExceeded, "receives_max"),
        ({"deduplicate_by_content": True}, InvalidValue, "only in-order queues"),
        ({"deduplicate_within_group": True}, InvalidValue, "only in-order queues"),
        ({"labels": {str(n): "" for n in range(51)}}, LimitExceeded, "labels"),
        ({"labels": {"policy": "x" * 65_536}}, LimitExceeded, "labels"),
    ],
)
def test_settings_are_refused(settings: dict[str, Any], error: type[LavantError], words: str) -> None:
    machine = machine_with("dead")
    with pytest.raises(error, match=words):
        machine.create(Q, **settings)
    machine.create(Q)
    with pytest.raises(error, match=words):
        machine.handle(ConfigureQueue(Q, QueueConfig(**settings)), 0)


@pytest.mark.parametrize(
    "tags", [{str(n): "" for n in range(51)}, {"": "x"}, {"k" * 129: ""}, {"k": "v" * 257}], ids=len
)
def test_tags_are_refused(tags: dict[str, str]) -> None:
    machine = machine_with()
    with pytest.raises(InvalidValue, match="tag"):
        machine.handle(TagQueue(Q, tags), 0)
    with pytest.raises(InvalidValue, match="tag"):
        machine.handle(CreateQueue("new", NEW, tags), 0)


@pytest.mark.parametrize(
    "request_",
    [
        ConfigureQueue("nobody", NEW),
        TagQueue("nobody", {}),
        DeleteQueue("nobody"),
        PurgeQueue("nobody"),
        DescribeQueue("nobody"),
        ListSources("nobody"),
    ],
)
def test_nobody_knows_the_queue(request_: Any) -> None:
    machine = machine_with()
    with pytest.raises(UnknownQueue) as caught:
        machine.handle(request_, 0)
    assert str(caught.value).startswith("there is no queue 'nobody'")
    assert not machine.changed


def test_each_start_has_a_later_epoch() -> None:
    machine = QueueMachine()
    assert machine.epoch == 0
    machine.handle(Open(3), 0)
    assert machine.epoch == 3
    for epoch in (3, 2, -1):
        with pytest.raises(InvalidValue, match="epoch"):
            machine.handle(Open(epoch), 0)
    with pytest.raises(LimitExceeded):
        machine.handle(Open(1 << 24), 0)


def test_what_is_no_request_is_refused() -> None:
    not_a_request: Any = NEW
    with pytest.raises(InvalidValue, match="QueueConfig is no request"):
        QueueMachine().handle(not_a_request, 0)
