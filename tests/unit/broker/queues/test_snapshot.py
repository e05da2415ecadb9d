"""Snapshots: a machine as bytes, and back."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.broker.queues.machines import Q, QueueMachine, bodies, machine_with, receipts, snapshot

from lavant.broker.protocol.queue_config import DEDUPLICATION_MS
from lavant.broker.protocol.queues import ListMoves, MoveSome, Open, PurgeQueue, SendEntry, StartMove, TagQueue
from lavant.broker.queues import snapshot as module
from lavant.broker.queues.accounting.quotas import UNLIMITED, QueueLimits
from lavant.broker.queues.machine import Queues
from lavant.core.errors import CorruptSnapshot


def restored(machine: Queues) -> QueueMachine:
    fresh = QueueMachine.restore(machine.snapshot())
    assert isinstance(fresh, QueueMachine)
    return fresh


def busy_machine() -> QueueMachine:
    """With something of everything."""
    machine = machine_with("dead")
    machine.create(Q, dead_letters="dead", receives_max=2, visibility_ms=1000)
    machine.create("in-order", order="in-order", visibility_ms=1000, deduplicate_within_group=True)
    machine.create("empty")
    machine.handle(TagQueue("empty", {"tag": "value"}), 5)
    machine.send(*[b"poison"] * 3, now_ms=8)
    for _ in range(3):
        machine.receive(3, visibility_ms=0)
    machine.send(*[b"%d" % n for n in range(20)], now_ms=10)
    machine.send(b"later", delay_ms=5000)
    for n in range(20):
        entry = SendEntry(b"", b"a", group=str(n % 3), deduplication=str(n % 7))
        machine.try_to_send(entry, queue="in-order", now_ms=11 + n)
    for now_ms in (40, 1040, 2040):
        machine.receive(4, now_ms=now_ms)
        machine.receive(3, queue="in-order")
    machine.acknowledge(*receipts(machine.receive(3)))
    machine.change((machine.receive()[0].receipt, 0))
    machine.handle(StartMove("dead", rate_per_s=5), 2050)
    machine.handle(MoveSome(1, 1), 2051)
    return machine


def test_a_restored_machine_is_the_same_in_every_bit() -> None:
    machine = busy_machine()
    fresh = restored(machine)
    assert snapshot(fresh) == snapshot(machine)
    assert (fresh.now_ms, fresh.epoch, fresh.bytes_held) == (machine.now_ms, machine.epoch, machine.bytes_held)
    assert fresh.wakeup_ms() == machine.wakeup_ms()
    assert fresh.moves_running() == machine.moves_running() != []
    for queue in ["dead", Q, "in-order", "empty"]:
        assert fresh.figures(queue) == machine.figures(queue)
        assert fresh.peek(queue, 100) == machine.peek(queue, 100)
        assert fresh.visible(queue, 0) == machine.visible(queue, 0)


def test_a_restored_machine_goes_on_like_the_old_one() -> None:
    machine = busy_machine()
    fresh = restored(machine)
    for now_ms in range(2100, 9000, 700):
        for queue in [Q, "in-order", "dead"]:
            assert fresh.receive(3, queue, now_ms) == machine.receive(3, queue, now_ms)
    entry = SendEntry(b"", group="1", deduplication="1")
    assert fresh.try_to_send(entry, queue="in-order") == machine.try_to_send(entry, queue="in-order") == [26]
    assert fresh.handle(MoveSome(1, 5), 9000) == machine.handle(MoveSome(1, 5), 9000)
    assert fresh.handle(ListMoves("dead"), 9000) == machine.handle(ListMoves("dead"), 9000)
    assert fresh.send(b"") == machine.send(b"")
    assert snapshot(fresh) == snapshot(machine)


def test_leases_go_on_counting() -> None:
    machine = busy_machine()
    fresh = restored(machine)
    fresh.handle(Open(machine.epoch + 1), fresh.now_ms)
    last = max(receipts(machine.receive(9)), key=lambda receipt: receipt.lease)
    assert all(receipt.lease > last.lease for receipt in receipts(fresh.receive(9)))


def test_the_line_of_an_out_of_order_queue_is_kept() -> None:
    machine = machine_with(visibility_ms=100)
    machine.send(b"a", b"b", b"c")
    machine.receive(2)
    machine.change((machine.receive()[0].receipt, 0))
    fresh = restored(machine)
    assert bodies(fresh.receive(3, now_ms=100)) == [b"c", b"a", b"b"]


def test_names_are_remembered_for_the_rest_of_their_time() -> None:
    machine = machine_with(order="in-order")
    machine.try_to_send(SendEntry(b"", deduplication="m"), now_ms=1)
    fresh = restored(machine)
    assert fresh.try_to_send(SendEntry(b"", deduplication="m"), now_ms=DEDUPLICATION_MS) == [1]
    assert fresh.try_to_send(SendEntry(b"", deduplication="m"), now_ms=DEDUPLICATION_MS + 1) == [2]


def test_names_whose_time_is_over_are_not_in_it() -> None:
    machine = machine_with(order="in-order", retention_ms=60_000)
    machine.try_to_send(SendEntry(b"", deduplication="m"))
    machine.advance(DEDUPLICATION_MS)
    assert b"m" not in b"".join(list(machine.snapshot())[2:])


def test_an_empty_machine_has_a_snapshot() -> None:
    assert snapshot(restored(Queues())) == snapshot(Queues())


def test_limits_are_those_of_the_new_machine() -> None:
    assert Queues.restore(machine_with().snapshot(), UNLIMITED).limits == UNLIMITED
    assert Queues.restore(machine_with().snapshot()).limits == QueueLimits()


def test_chunks_are_about_a_megabyte() -> None:
    machine = machine_with()
    for n in range(50):
        machine.send(*[bytes([n]) * 10_000] * 10)
    sizes = [len(chunk) for chunk in machine.snapshot()]
    assert len([size for size in sizes if size > 900_000]) == 4
    assert max(sizes) < 1_100_000
    assert snapshot(restored(machine)) == snapshot(machine)


def test_many_names_and_numbers_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_NAMES", 7)
    monkeypatch.setattr(module, "CHUNK_NUMBERS", 7)
    machine = machine_with("in-order", order="in-order")
    machine.create(Q)
    machine.try_to_send(*[SendEntry(b"", deduplication=str(n)) for n in range(20)], queue="in-order")
    machine.send(*[b""] * 20)
    chunks = list(machine.snapshot())
    assert len(chunks) == 1 + (1 + 1 + 3) + (1 + 1 + 3) + 1
    assert list(Queues.restore(chunks).snapshot()) == chunks


def test_messages_sent_together_share_their_time_after_a_restart_too() -> None:
    machine = machine_with()
    machine.send(b"a", b"b", now_ms=10**12)
    first, second = restored(machine)._directory[Q].messages.values()
    assert first.sent_ms is first.entered_ms is second.sent_ms is second.entered_ms


Chunks = list[bytes]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda chunks: [], "does not begin with its head"),
        (lambda chunks: chunks[1:], "does not begin with its head"),
        (lambda chunks: chunks[:-1], "its end is missing"),
        (lambda chunks: [*chunks, chunks[-1]], "it ends after 2 messages"),
        (lambda chunks: [*chunks[:2], *chunks[3:]], "message 1 of queue 'orders' is missing"),
        (lambda chunks: [*chunks[:2], *chunks[4:]], "it ends after 0 messages, 2 were written"),
        (lambda chunks: [chunks[0], *chunks[2:]], "out of order"),
        (lambda chunks: [chunks[0], *chunks], "out of order"),
        (lambda chunks: [chunks[0], b"\xc1", *chunks[2:]], "chunk 1 cannot be read"),
        (lambda chunks: [chunks[0], chunks[1][:-1], *chunks[2:]], "chunk 1 cannot be read"),
    ],
)
def test_a_damaged_snapshot_is_refused(spoil: Callable[[Chunks], Chunks], words: str) -> None:
    machine = machine_with()
    machine.send(b"a", b"b")
    with pytest.raises(CorruptSnapshot, match=words):
        Queues.restore(spoil(list(machine.snapshot())))


def test_a_snapshot_of_another_format_is_refused() -> None:
    chunks = list(machine_with().snapshot())
    head = msgspec.msgpack.decode(chunks[0])
    head[1] = 99
    with pytest.raises(CorruptSnapshot, match="has format 99, this version of Lavant reads up to format 2"):
        Queues.restore([msgspec.msgpack.encode(head), *chunks[1:]])


def test_nothing_is_left_of_purged_messages() -> None:
    machine = machine_with()
    machine.send(bytes(100_000))
    machine.handle(PurgeQueue(Q), 0)
    assert len(snapshot(machine)) < 1000
