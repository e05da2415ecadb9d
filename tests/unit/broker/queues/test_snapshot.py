"""Snapshots: a hub as bytes, and back."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.broker.queues.hubs import Hub, Q, bodies, hub_with, receipts, snapshot

from lavant.broker.protocol.queue_config import DEDUPLICATION_MS
from lavant.broker.protocol.queues import ListMoves, MoveSome, Open, PurgeQueue, SendEntry, StartMove, TagQueue
from lavant.broker.queues import UNLIMITED, QueueLimits, Queues
from lavant.broker.queues import snapshot as module
from lavant.core.errors import CorruptSnapshot


def restored(hub: Queues) -> Hub:
    fresh = Hub.restore(hub.snapshot())
    assert isinstance(fresh, Hub)
    return fresh


def busy_hub() -> Hub:
    """With something of everything."""
    hub = hub_with("dead")
    hub.create(Q, dead_letters="dead", receives_max=2, visibility_ms=1000)
    hub.create("in-order", order="in-order", visibility_ms=1000, deduplicate_within_group=True)
    hub.create("empty")
    hub.handle(TagQueue("empty", {"tag": "value"}), 5)
    hub.send(*[b"poison"] * 3, now_ms=8)
    for _ in range(3):
        hub.receive(3, visibility_ms=0)
    hub.send(*[b"%d" % n for n in range(20)], now_ms=10)
    hub.send(b"later", delay_ms=5000)
    for n in range(20):
        entry = SendEntry(b"", b"a", group=str(n % 3), deduplication=str(n % 7))
        hub.try_to_send(entry, queue="in-order", now_ms=11 + n)
    for now_ms in (40, 1040, 2040):
        hub.receive(4, now_ms=now_ms)
        hub.receive(3, queue="in-order")
    hub.acknowledge(*receipts(hub.receive(3)))
    hub.change((hub.receive()[0].receipt, 0))
    hub.handle(StartMove("dead", rate_per_s=5), 2050)
    hub.handle(MoveSome(1, 1), 2051)
    return hub


def test_a_restored_hub_is_the_same_in_every_bit() -> None:
    hub = busy_hub()
    fresh = restored(hub)
    assert snapshot(fresh) == snapshot(hub)
    assert (fresh.now_ms, fresh.epoch, fresh.bytes_held) == (hub.now_ms, hub.epoch, hub.bytes_held)
    assert fresh.wakeup_ms() == hub.wakeup_ms()
    assert fresh.moves_running() == hub.moves_running() != []
    for queue in ["dead", Q, "in-order", "empty"]:
        assert fresh.figures(queue) == hub.figures(queue)
        assert fresh.peek(queue, 100) == hub.peek(queue, 100)
        assert fresh.visible(queue, 0) == hub.visible(queue, 0)


def test_a_restored_hub_goes_on_like_the_old_one() -> None:
    hub = busy_hub()
    fresh = restored(hub)
    for now_ms in range(2100, 9000, 700):
        for queue in [Q, "in-order", "dead"]:
            assert fresh.receive(3, queue, now_ms) == hub.receive(3, queue, now_ms)
    entry = SendEntry(b"", group="1", deduplication="1")
    assert fresh.try_to_send(entry, queue="in-order") == hub.try_to_send(entry, queue="in-order") == [26]
    assert fresh.handle(MoveSome(1, 5), 9000) == hub.handle(MoveSome(1, 5), 9000)
    assert fresh.handle(ListMoves("dead"), 9000) == hub.handle(ListMoves("dead"), 9000)
    assert fresh.send(b"") == hub.send(b"")
    assert snapshot(fresh) == snapshot(hub)


def test_leases_go_on_counting() -> None:
    hub = busy_hub()
    fresh = restored(hub)
    fresh.handle(Open(hub.epoch + 1), fresh.now_ms)
    last = max(receipts(hub.receive(9)), key=lambda receipt: receipt.lease)
    assert all(receipt.lease > last.lease for receipt in receipts(fresh.receive(9)))


def test_the_line_of_an_out_of_order_queue_is_kept() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a", b"b", b"c")
    hub.receive(2)
    hub.change((hub.receive()[0].receipt, 0))
    fresh = restored(hub)
    assert bodies(fresh.receive(3, now_ms=100)) == [b"c", b"a", b"b"]


def test_names_are_remembered_for_the_rest_of_their_time() -> None:
    hub = hub_with(order="in-order")
    hub.try_to_send(SendEntry(b"", deduplication="m"), now_ms=1)
    fresh = restored(hub)
    assert fresh.try_to_send(SendEntry(b"", deduplication="m"), now_ms=DEDUPLICATION_MS) == [1]
    assert fresh.try_to_send(SendEntry(b"", deduplication="m"), now_ms=DEDUPLICATION_MS + 1) == [2]


def test_names_whose_time_is_over_are_not_in_it() -> None:
    hub = hub_with(order="in-order", retention_ms=60_000)
    hub.try_to_send(SendEntry(b"", deduplication="m"))
    hub.advance(DEDUPLICATION_MS)
    assert b"m" not in b"".join(list(hub.snapshot())[2:])


def test_an_empty_hub_has_a_snapshot() -> None:
    assert snapshot(restored(Queues())) == snapshot(Queues())


def test_limits_are_those_of_the_new_hub() -> None:
    assert Queues.restore(hub_with().snapshot(), UNLIMITED).limits == UNLIMITED
    assert Queues.restore(hub_with().snapshot()).limits == QueueLimits()


def test_chunks_are_about_a_megabyte() -> None:
    hub = hub_with()
    for n in range(50):
        hub.send(*[bytes([n]) * 10_000] * 10)
    sizes = [len(chunk) for chunk in hub.snapshot()]
    assert len([size for size in sizes if size > 900_000]) == 4
    assert max(sizes) < 1_100_000
    assert snapshot(restored(hub)) == snapshot(hub)


def test_many_names_and_numbers_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_NAMES", 7)
    monkeypatch.setattr(module, "CHUNK_NUMBERS", 7)
    hub = hub_with("in-order", order="in-order")
    hub.create(Q)
    hub.try_to_send(*[SendEntry(b"", deduplication=str(n)) for n in range(20)], queue="in-order")
    hub.send(*[b""] * 20)
    chunks = list(hub.snapshot())
    assert len(chunks) == 1 + (1 + 1 + 3) + (1 + 1 + 3) + 1
    assert list(Queues.restore(chunks).snapshot()) == chunks


def test_messages_sent_together_share_their_time_after_a_restart_too() -> None:
    hub = hub_with()
    hub.send(b"a", b"b", now_ms=10**12)
    first, second = restored(hub)._directory[Q].messages.values()
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
    hub = hub_with()
    hub.send(b"a", b"b")
    with pytest.raises(CorruptSnapshot, match=words):
        Queues.restore(spoil(list(hub.snapshot())))


def test_a_snapshot_of_another_format_is_refused() -> None:
    chunks = list(hub_with().snapshot())
    head = msgspec.msgpack.decode(chunks[0])
    head[1] = 99
    with pytest.raises(CorruptSnapshot, match="has format 99, this version reads 2"):
        Queues.restore([msgspec.msgpack.encode(head), *chunks[1:]])


def test_nothing_is_left_of_purged_messages() -> None:
    hub = hub_with()
    hub.send(bytes(100_000))
    hub.handle(PurgeQueue(Q), 0)
    assert len(snapshot(hub)) < 1000
