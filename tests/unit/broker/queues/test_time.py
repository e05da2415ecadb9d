"""Time: what happens by itself, when, and that it does not matter who looked before."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.queues.machines import MINUTE_MS, Q, QueueMachine, bodies, machine_with, snapshot

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue, DeleteQueue, DescribeQueue, PurgeQueue

DAYS_MS = 4 * 24 * 60 * MINUTE_MS


def test_a_message_expires_at_the_first_whole_second_after_its_retention() -> None:
    machine = machine_with(retention_ms=MINUTE_MS)
    machine.send(b"on the second", now_ms=1000)
    machine.send(b"behind it", now_ms=1001)
    assert machine.wakeup_ms() == 61_000
    assert machine.states(now_ms=60_999) == (2, 0, 0)
    assert machine.states(now_ms=61_000) == (1, 0, 0)
    assert machine.wakeup_ms() == 62_000
    assert machine.states(now_ms=61_999) == (1, 0, 0)
    assert machine.states(now_ms=62_000) == (0, 0, 0)
    assert machine.figures().expired == 2
    assert machine.wakeup_ms() is None


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_messages_expire_whatever_their_state(order: Any) -> None:
    machine = machine_with(order=order, retention_ms=MINUTE_MS, visibility_ms=10 * MINUTE_MS)
    machine.send(b"in flight", b"visible")
    machine.receive()
    machine.handle(ConfigureQueue(Q, QueueConfig(order=order, retention_ms=MINUTE_MS, delay_ms=10 * MINUTE_MS)), 0)
    machine.send(b"delayed")
    assert machine.states() == (1, 1, 1)
    assert machine.states(now_ms=MINUTE_MS) == (0, 0, 0)
    figures = machine.figures()
    assert (figures.expired, figures.returned, figures.bytes) == (3, 0, 0)


def test_a_lease_that_ends_when_its_message_expires_does_not_return_it() -> None:
    machine = machine_with(retention_ms=MINUTE_MS, visibility_ms=MINUTE_MS)
    machine.send(b"a")
    machine.receive()
    machine.advance(MINUTE_MS)
    assert (machine.figures().expired, machine.figures().returned) == (1, 0)


def test_a_lease_that_ends_before_its_message_expires_returns_it_even_if_nobody_looks_in_between() -> None:
    machine = machine_with(retention_ms=MINUTE_MS, visibility_ms=MINUTE_MS - 1)
    machine.send(b"a")
    machine.receive()
    machine.advance(10 * MINUTE_MS)
    assert (machine.figures().expired, machine.figures().returned) == (1, 1)


def test_a_shorter_retention_is_for_old_messages_too_at_once() -> None:
    machine = machine_with()
    machine.send(b"old", now_ms=0)
    machine.send(b"young", now_ms=50_000)
    machine.handle(ConfigureQueue(Q, QueueConfig(retention_ms=MINUTE_MS)), 90_500)
    assert bodies(machine.receive(5)) == [b"young"]
    assert machine.wakeup_ms() == 110_000


def test_a_longer_retention_keeps_old_messages() -> None:
    machine = machine_with(retention_ms=MINUTE_MS)
    machine.send(b"a")
    machine.handle(ConfigureQueue(Q, QueueConfig(retention_ms=2 * MINUTE_MS)), 59_000)
    assert machine.states(now_ms=MINUTE_MS) == (1, 0, 0)
    assert machine.wakeup_ms() == 2 * MINUTE_MS


def test_time_never_goes_back() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a", now_ms=1000)
    machine.receive(now_ms=500)
    assert machine.now_ms == 1000
    assert machine.advance(10) == []
    assert not machine.visible(Q, 10)
    assert machine.now_ms == 1000
    assert machine.wakeup_ms() == 1100
    assert machine.receive(now_ms=1099) == []
    assert bodies(machine.receive(now_ms=1100)) == [b"a"]
    assert machine.receive(now_ms=0) == []


def test_the_machine_sleeps_until_the_first_of_all_queues_has_something_to_do() -> None:
    machine = QueueMachine()
    assert machine.wakeup_ms() is None
    for n in range(5):
        machine.create(f"q{n}", visibility_ms=1000 - 100 * n)
        machine.send(b"", queue=f"q{n}")
    assert machine.wakeup_ms() == DAYS_MS
    for n in range(5):
        machine.receive(queue=f"q{n}")
        assert machine.wakeup_ms() == 1000 - 100 * n
    assert machine.advance(700) == ["q4", "q3"]
    assert machine.wakeup_ms() == 800
    assert machine.advance(700) == []


def test_what_is_gone_wakes_nobody() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a")
    (delivery,) = machine.receive()
    machine.acknowledge(delivery.receipt)
    assert machine.wakeup_ms() is None
    machine.send(b"a", delay_ms=100)
    machine.handle(PurgeQueue(Q), 0)
    assert machine.wakeup_ms() is None
    machine.send(b"a", delay_ms=100)
    machine.handle(DeleteQueue(Q), 0)
    assert machine.wakeup_ms() is None
    machine.create(Q)
    assert machine.advance(1000) == []


def test_a_deleted_queue_does_not_wake_the_next_one_of_its_name() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a", delay_ms=100)
    machine.handle(DeleteQueue(Q), 0)
    machine.create(Q)
    machine.send(b"b", delay_ms=200)
    assert machine.wakeup_ms() == 200
    assert machine.advance(150) == []


def test_it_does_not_matter_how_often_somebody_looked() -> None:
    seldom, often = (machine_with(retention_ms=MINUTE_MS, visibility_ms=700) for _ in range(2))
    for machine in (seldom, often):
        for n in range(10):
            machine.send(b"%d" % n, now_ms=n * 300, delay_ms=n * 77 % 500)
            machine.receive(2, visibility_ms=n * 131 % 900)
    for now_ms in range(3000, 70_000, 101):
        often.handle(DescribeQueue(Q), now_ms)
    seldom.advance(often.now_ms)
    assert snapshot(seldom) == snapshot(often)
    assert seldom.figures() == often.figures()
