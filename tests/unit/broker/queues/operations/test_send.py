"""Sending: what is accepted, entry by entry, and when it can be received."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.queues.machines import MINUTE_MS, Q, QueueMachine, bodies, machine_with, snapshot

from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, DELAY_MS_MAX, QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue, DeleteQueue, PurgeQueue, Refused, Send, SendEntry, Sent
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, StorageFull, UnknownQueue


def test_messages_of_all_queues_are_numbered_from_one_without_gaps() -> None:
    machine = machine_with()
    machine.create("others")
    assert [machine.send(b"a", b"b"), machine.send(b"c", queue="others"), machine.send(b"d")] == [[1, 2], [3], [4]]


def test_a_refused_entry_takes_no_number_and_does_not_hold_up_the_others() -> None:
    machine = machine_with(message_bytes_max=1024)
    assert machine.try_to_send(SendEntry(b"a"), SendEntry(bytes(1025)), SendEntry(b"b")) == [1, "LimitExceeded", 2]
    assert bodies(machine.receive(5)) == [b"a", b"b"]


def test_body_and_attributes_count_together() -> None:
    machine = machine_with(message_bytes_max=1024)
    assert machine.try_to_send(SendEntry(bytes(1000), bytes(24)), SendEntry(bytes(1000), bytes(25))) == [
        1,
        "LimitExceeded",
    ]
    assert machine.figures().bytes == machine.bytes_held == 1024


def test_a_full_queue_refuses_until_something_is_acknowledged() -> None:
    machine = machine_with(depth_max=2)
    assert machine.try_to_send(SendEntry(b"a"), SendEntry(b"b"), SendEntry(b"c")) == [1, 2, "QueueFull"]
    (first,) = machine.receive()
    assert machine.try_to_send(SendEntry(b"c")) == ["QueueFull"]  # in flight, it is still there
    machine.acknowledge(first.receipt)
    assert machine.try_to_send(SendEntry(b"c"), SendEntry(b"d")) == [3, "QueueFull"]


def test_a_batch_of_which_nothing_is_accepted_changes_nothing() -> None:
    machine = machine_with(depth_max=1)
    machine.send(b"a")
    assert machine.changed
    before = snapshot(machine)
    assert machine.try_to_send(SendEntry(b"b"), SendEntry(bytes(1 << 20), b"x")) == ["QueueFull", "LimitExceeded"]
    assert not machine.changed
    assert snapshot(machine) == before


def test_a_message_can_be_received_when_its_delay_is_over() -> None:
    machine = machine_with(delay_ms=100)
    machine.send(b"as the queue", now_ms=10)
    machine.send(b"at once", delay_ms=0, now_ms=10)
    machine.send(b"later", delay_ms=150, now_ms=10)
    assert machine.states() == (1, 0, 2)
    assert bodies(machine.receive(5, now_ms=109)) == [b"at once"]
    assert bodies(machine.receive(5, now_ms=110)) == [b"as the queue"]
    assert machine.wakeup_ms() == 160
    assert bodies(machine.receive(5, now_ms=160)) == [b"later"]


def test_delayed_messages_become_visible_in_the_order_of_time_and_number() -> None:
    machine = machine_with()
    for body, delay_ms in [(b"third", 30), (b"first", 10), (b"second", 20), (b"fourth", 30)]:
        machine.send(body, delay_ms=delay_ms)
    assert bodies(machine.receive(5, now_ms=1000)) == [b"first", b"second", b"third", b"fourth"]


def test_a_new_delay_of_the_queue_is_for_new_messages() -> None:
    machine = machine_with(delay_ms=100)
    machine.send(b"old")
    configure(machine, delay_ms=0)
    machine.send(b"new")
    assert bodies(machine.receive(5)) == [b"new"]


def configure(machine: QueueMachine, **settings: Any) -> None:
    machine.handle(ConfigureQueue(Q, QueueConfig(**settings)), machine.now_ms)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (SendEntry(b"", delay_ms=-1), "InvalidValue"),
        (SendEntry(b"", delay_ms=DELAY_MS_MAX + 1), "LimitExceeded"),
        (SendEntry(b"", group="a"), "InvalidValue"),
        (SendEntry(b"", deduplication="a"), "InvalidValue"),
    ],
)
def test_an_out_of_order_queue_refuses(entry: SendEntry, code: str) -> None:
    machine = machine_with()
    assert machine.try_to_send(entry, SendEntry(b"good")) == [code, 1]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (SendEntry(b"", delay_ms=1), "InvalidValue"),
        (SendEntry(b"", group="g" * 129), "LimitExceeded"),
        (SendEntry(b"", deduplication="d" * 129), "LimitExceeded"),
    ],
)
def test_an_in_order_queue_refuses(entry: SendEntry, code: str) -> None:
    machine = machine_with(order="in-order")
    assert machine.try_to_send(entry, SendEntry(b"good", group="g" * 128, deduplication="d" * 128)) == [code, 1]


def test_an_in_order_queue_accepts_the_delay_that_it_has_anyway() -> None:
    machine = machine_with(order="in-order", delay_ms=100)
    assert machine.try_to_send(SendEntry(b"", delay_ms=100), SendEntry(b"", delay_ms=0)) == [1, "InvalidValue"]


def test_a_refusal_says_the_value_and_what_to_do() -> None:
    machine = machine_with(message_bytes_max=1024)
    (refused,) = machine.ask(Send(Q, [SendEntry(bytes(2000))]), Sent).entries
    assert isinstance(refused, Refused)
    assert "2000 bytes" in refused.reason
    assert "1024" in refused.reason
    assert "store the content elsewhere" in refused.reason


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (Send("nobody", [SendEntry(b"")]), UnknownQueue, "no queue 'nobody'"),
        (Send(Q, []), InvalidValue, "no entries"),
        (Send(Q, [SendEntry(b"")] * (BATCH_ENTRIES_MAX + 1)), LimitExceeded, "1001 entries"),
        (Send(Q, [SendEntry(bytes(1 << 20))] * 16 + [SendEntry(b"x")]), LimitExceeded, f"at most {BATCH_BYTES_MAX}"),
    ],
)
def test_a_whole_batch_is_refused(request_: Send, error: type[LavantError], words: str) -> None:
    machine = machine_with()
    with pytest.raises(error, match=words):
        machine.handle(request_, 0)
    assert not machine.changed
    assert machine.figures().sent == 0


def test_all_queues_together_hold_no_more_than_the_machine_may() -> None:
    machine = machine_with()
    machine.create("others")
    room = 2 * MESSAGE + 100
    machine.limits = QueueLimits(memory_max=machine.memory_held + room)
    machine.send(bytes(60))
    machine.send(bytes(40), queue="others")
    assert machine.memory_held == machine.limits.memory_max
    with pytest.raises(
        StorageFull, match=f"take {machine.memory_held} bytes of the server's memory, {MESSAGE + 1} more"
    ):
        machine.send(b"x")
    (delivery,) = machine.receive()
    machine.acknowledge(delivery.receipt)
    machine.send(bytes(60), queue="others")


def test_bytes_are_free_again_when_messages_expire_or_are_purged_or_their_queue_is_deleted() -> None:
    machine = machine_with(retention_ms=MINUTE_MS)
    for queue in ["purged", "deleted"]:
        machine.create(queue)
        machine.send(bytes(10), queue=queue)
    machine.send(bytes(10))
    machine.handle(PurgeQueue("purged"), 0)
    assert machine.bytes_held == 20
    machine.handle(DeleteQueue("deleted"), 0)
    assert machine.bytes_held == 10
    machine.advance(MINUTE_MS)
    assert machine.bytes_held == 0
