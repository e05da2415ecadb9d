"""Creating, configuring, tagging, purging, deleting and listing queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.queues.hubs import Hub, Q, hub_with

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
from lavant.broker.queues import QueueLimits
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, QueueExists, UnknownQueue

NEW = QueueConfig()


def described(hub: Hub, queue: str = Q) -> Described:
    return hub.ask(DescribeQueue(queue), Described)


def test_a_queue_is_created_once() -> None:
    hub = Hub()
    assert hub.handle(CreateQueue(Q, NEW, {"a": "b"}), 7) == QueueCreated(is_new=True)
    assert hub.changed
    hub.send(b"stays")
    assert hub.handle(CreateQueue(Q, NEW, {"c": "d"}), 9) == QueueCreated(is_new=False)
    assert not hub.changed
    answer = described(hub)
    assert (answer.config, answer.tags, answer.created_ms, answer.changed_ms) == (NEW, {"a": "b"}, 7, 7)
    assert answer.figures.visible == 1


def test_a_name_that_is_taken_by_another_queue_says_what_differs() -> None:
    hub = hub_with(visibility_ms=5000)
    with pytest.raises(QueueExists, match="'orders' exists already with visibility_ms 5000 instead of 30000"):
        hub.handle(CreateQueue(Q, NEW), 0)
    assert described(hub).config.visibility_ms == 5000


def test_settings_and_tags_can_be_changed() -> None:
    hub = hub_with()
    changed = QueueConfig(visibility_ms=1, labels={"policy": "…"})
    hub.handle(ConfigureQueue(Q, changed), 5)
    hub.handle(TagQueue(Q, {"team": "a"}), 6)
    answer = described(hub)
    assert (answer.config, answer.tags, answer.created_ms, answer.changed_ms) == (changed, {"team": "a"}, 0, 5)
    hub.handle(TagQueue(Q, {}), 6)
    assert described(hub).tags == {}


def test_the_order_of_a_queue_cannot_be_changed() -> None:
    hub = hub_with()
    with pytest.raises(InvalidValue, match="'orders' is out-of-order and cannot become in-order"):
        hub.handle(ConfigureQueue(Q, QueueConfig(order="in-order")), 0)


def test_a_deleted_queue_is_gone_with_all_its_messages() -> None:
    hub = hub_with()
    hub.send(b"a", b"b")
    (delivery,) = hub.receive()
    hub.handle(DeleteQueue(Q), 0)
    with pytest.raises(UnknownQueue, match="no queue 'orders'; create it first"):
        hub.receive()
    hub.create(Q)
    assert hub.figures().sent == 0
    assert hub.acknowledge(delivery.receipt) == {}
    assert hub.send(b"c") == [3]


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_a_purged_queue_is_empty_and_goes_on(order: str) -> None:
    hub = hub_with(order=order)
    hub.send(b"a", b"b", b"c")
    (delivery,) = hub.receive()
    hub.handle(PurgeQueue(Q), 0)
    assert hub.states() == (0, 0, 0)
    assert hub.peek() == []
    figures = hub.figures()
    assert (figures.sent, figures.received, figures.acknowledged, figures.oldest_sent_ms) == (3, 1, 0, None)
    assert hub.acknowledge(delivery.receipt) == {}
    hub.send(b"d")
    assert [each.body for each in hub.receive(5, now_ms=100_000)] == [b"d"]


def test_queues_are_listed_by_name_page_by_page() -> None:
    hub = Hub()
    for name in ["b1", "a", "c", "b3", "b2"]:
        hub.create(name)
    hub.handle(DeleteQueue("b2"), 0)
    hub.create("b0")

    def names(prefix: str = "", after: str = "", count: int = 1000) -> list[str]:
        return hub.ask(ListQueues(prefix, after, count), Listed).queues

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
    hub = hub_with("dead")
    for name in ["b", "a"]:
        hub.create(name, dead_letters="dead", receives_max=3)
    assert hub.ask(ListSources("dead"), Listed).queues == ["a", "b"]
    assert hub.ask(ListSources("a"), Listed).queues == []
    hub.handle(ConfigureQueue("a", NEW), 0)
    hub.handle(DeleteQueue("b"), 0)
    assert hub.ask(ListSources("dead"), Listed).queues == []
    hub.handle(DeleteQueue("dead"), 0)
    with pytest.raises(UnknownQueue):
        hub.handle(ListSources("dead"), 0)


@pytest.mark.parametrize(
    ("name", "order", "words"),
    [
        ("nobody", "out-of-order", "no queue 'nobody' for dead letters; create it first"),
        ("dead", "in-order", "both must be the same"),
        (Q, "out-of-order", "its own dead-letter queue"),
    ],
)
def test_dead_letters_need_another_queue_of_the_same_order(name: str, order: Any, words: str) -> None:
    hub = hub_with("dead")
    config = QueueConfig(order=order, dead_letters=name, receives_max=1)
    with pytest.raises(InvalidValue, match=words):
        hub.handle(CreateQueue(Q, config), 0)
    hub.create(Q, order=order)
    with pytest.raises(InvalidValue, match=words):
        hub.handle(ConfigureQueue(Q, config), 0)
    assert described(hub).config.dead_letters is None


def test_a_queue_can_be_configured_and_created_again_while_its_dead_letter_queue_is_gone() -> None:
    hub = hub_with("dead")
    config = QueueConfig(dead_letters="dead", receives_max=1)
    hub.handle(CreateQueue(Q, config), 0)
    hub.handle(DeleteQueue("dead"), 0)
    assert hub.handle(CreateQueue(Q, config), 0) == QueueCreated(is_new=False)
    hub.handle(ConfigureQueue(Q, QueueConfig(dead_letters="dead", receives_max=2)), 0)
    assert described(hub).config.receives_max == 2


def test_there_are_only_so_many_queues() -> None:
    hub = Hub(QueueLimits(queues_max=2))
    hub.create("a")
    hub.create("b")
    with pytest.raises(LimitExceeded, match="2 queues, which is the limit"):
        hub.create("c")
    hub.create("b")
    hub.handle(DeleteQueue("a"), 0)
    hub.create("c")


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "/a", "a/", "ä", "a\n", "x" * 81])
def test_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="queue's name"):
        Hub().create(name)


@pytest.mark.parametrize("name", ["a", "A-b_c.fifo", "x" * 80, "0"])
def test_a_name_is_accepted(name: str) -> None:
    Hub().create(name)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"order": "sideways"}, InvalidValue, "must be out-of-order or in-order, got 'sideways'"),
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
    hub = hub_with("dead")
    with pytest.raises(error, match=words):
        hub.create(Q, **settings)
    hub.create(Q)
    with pytest.raises(error, match=words):
        hub.handle(ConfigureQueue(Q, QueueConfig(**settings)), 0)


@pytest.mark.parametrize(
    "tags", [{str(n): "" for n in range(51)}, {"": "x"}, {"k" * 129: ""}, {"k": "v" * 257}], ids=len
)
def test_tags_are_refused(tags: dict[str, str]) -> None:
    hub = hub_with()
    with pytest.raises(InvalidValue, match="tag"):
        hub.handle(TagQueue(Q, tags), 0)
    with pytest.raises(InvalidValue, match="tag"):
        hub.handle(CreateQueue("new", NEW, tags), 0)


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
    hub = hub_with()
    with pytest.raises(UnknownQueue) as caught:
        hub.handle(request_, 0)
    assert str(caught.value).startswith("there is no queue 'nobody'")
    assert not hub.changed


def test_each_start_has_a_later_epoch() -> None:
    hub = Hub()
    assert hub.epoch == 0
    hub.handle(Open(3), 0)
    assert hub.epoch == 3
    for epoch in (3, 2, -1):
        with pytest.raises(InvalidValue, match="epoch"):
            hub.handle(Open(epoch), 0)
    with pytest.raises(LimitExceeded):
        hub.handle(Open(1 << 24), 0)


def test_what_is_no_request_is_refused() -> None:
    not_a_request: Any = NEW
    with pytest.raises(InvalidValue, match="QueueConfig is no request"):
        Hub().handle(not_a_request, 0)
