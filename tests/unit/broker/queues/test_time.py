"""Time: what happens by itself, when, and that it does not matter who looked before."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.queues.hubs import MINUTE_MS, Hub, Q, bodies, hub_with, snapshot

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue, DeleteQueue, DescribeQueue, PurgeQueue

DAYS_MS = 4 * 24 * 60 * MINUTE_MS


def test_a_message_expires_at_the_first_whole_second_after_its_retention() -> None:
    hub = hub_with(retention_ms=MINUTE_MS)
    hub.send(b"on the second", now_ms=1000)
    hub.send(b"behind it", now_ms=1001)
    assert hub.wakeup_ms() == 61_000
    assert hub.states(now_ms=60_999) == (2, 0, 0)
    assert hub.states(now_ms=61_000) == (1, 0, 0)
    assert hub.wakeup_ms() == 62_000
    assert hub.states(now_ms=61_999) == (1, 0, 0)
    assert hub.states(now_ms=62_000) == (0, 0, 0)
    assert hub.figures().expired == 2
    assert hub.wakeup_ms() is None


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_messages_expire_whatever_their_state(order: Any) -> None:
    hub = hub_with(order=order, retention_ms=MINUTE_MS, visibility_ms=10 * MINUTE_MS)
    hub.send(b"in flight", b"visible")
    hub.receive()
    hub.handle(ConfigureQueue(Q, QueueConfig(order=order, retention_ms=MINUTE_MS, delay_ms=10 * MINUTE_MS)), 0)
    hub.send(b"delayed")
    assert hub.states() == (1, 1, 1)
    assert hub.states(now_ms=MINUTE_MS) == (0, 0, 0)
    figures = hub.figures()
    assert (figures.expired, figures.returned, figures.bytes) == (3, 0, 0)


def test_a_lease_that_ends_when_its_message_expires_does_not_return_it() -> None:
    hub = hub_with(retention_ms=MINUTE_MS, visibility_ms=MINUTE_MS)
    hub.send(b"a")
    hub.receive()
    hub.advance(MINUTE_MS)
    assert (hub.figures().expired, hub.figures().returned) == (1, 0)


def test_a_lease_that_ends_before_its_message_expires_returns_it_even_if_nobody_looks_in_between() -> None:
    hub = hub_with(retention_ms=MINUTE_MS, visibility_ms=MINUTE_MS - 1)
    hub.send(b"a")
    hub.receive()
    hub.advance(10 * MINUTE_MS)
    assert (hub.figures().expired, hub.figures().returned) == (1, 1)


def test_a_shorter_retention_is_for_old_messages_too_at_once() -> None:
    hub = hub_with()
    hub.send(b"old", now_ms=0)
    hub.send(b"young", now_ms=50_000)
    hub.handle(ConfigureQueue(Q, QueueConfig(retention_ms=MINUTE_MS)), 90_500)
    assert bodies(hub.receive(5)) == [b"young"]
    assert hub.wakeup_ms() == 110_000


def test_a_longer_retention_keeps_old_messages() -> None:
    hub = hub_with(retention_ms=MINUTE_MS)
    hub.send(b"a")
    hub.handle(ConfigureQueue(Q, QueueConfig(retention_ms=2 * MINUTE_MS)), 59_000)
    assert hub.states(now_ms=MINUTE_MS) == (1, 0, 0)
    assert hub.wakeup_ms() == 2 * MINUTE_MS


def test_time_never_goes_back() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a", now_ms=1000)
    hub.receive(now_ms=500)
    assert hub.now_ms == 1000
    assert hub.advance(10) == []
    assert not hub.visible(Q, 10)
    assert hub.now_ms == 1000
    assert hub.wakeup_ms() == 1100
    assert hub.receive(now_ms=1099) == []
    assert bodies(hub.receive(now_ms=1100)) == [b"a"]
    assert hub.receive(now_ms=0) == []


def test_the_hub_sleeps_until_the_first_of_all_queues_has_something_to_do() -> None:
    hub = Hub()
    assert hub.wakeup_ms() is None
    for n in range(5):
        hub.create(f"q{n}", visibility_ms=1000 - 100 * n)
        hub.send(b"", queue=f"q{n}")
    assert hub.wakeup_ms() == DAYS_MS
    for n in range(5):
        hub.receive(queue=f"q{n}")
        assert hub.wakeup_ms() == 1000 - 100 * n
    assert hub.advance(700) == ["q4", "q3"]
    assert hub.wakeup_ms() == 800
    assert hub.advance(700) == []


def test_what_is_gone_wakes_nobody() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a")
    (delivery,) = hub.receive()
    hub.acknowledge(delivery.receipt)
    assert hub.wakeup_ms() is None
    hub.send(b"a", delay_ms=100)
    hub.handle(PurgeQueue(Q), 0)
    assert hub.wakeup_ms() is None
    hub.send(b"a", delay_ms=100)
    hub.handle(DeleteQueue(Q), 0)
    assert hub.wakeup_ms() is None
    hub.create(Q)
    assert hub.advance(1000) == []


def test_a_deleted_queue_does_not_wake_the_next_one_of_its_name() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a", delay_ms=100)
    hub.handle(DeleteQueue(Q), 0)
    hub.create(Q)
    hub.send(b"b", delay_ms=200)
    assert hub.wakeup_ms() == 200
    assert hub.advance(150) == []


def test_it_does_not_matter_how_often_somebody_looked() -> None:
    seldom, often = (hub_with(retention_ms=MINUTE_MS, visibility_ms=700) for _ in range(2))
    for hub in (seldom, often):
        for n in range(10):
            hub.send(b"%d" % n, now_ms=n * 300, delay_ms=n * 77 % 500)
            hub.receive(2, visibility_ms=n * 131 % 900)
    for now_ms in range(3000, 70_000, 101):
        often.handle(DescribeQueue(Q), now_ms)
    seldom.advance(often.now_ms)
    assert snapshot(seldom) == snapshot(often)
    assert seldom.figures() == often.figures()
