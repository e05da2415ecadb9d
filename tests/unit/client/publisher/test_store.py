"""The publisher's store on a disk in memory: what is staged and not settled is there again, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from tests.unit.broker.storage.journal.torn_disk import PowerFailure, TornDisk

from lavant.broker.storage.disks import MemoryDisk
from lavant.broker.storage.journal import Disk, Journal, JournalConfig
from lavant.client.publisher.records import TICKETS_MAX, encode_publication, encode_settled, replay
from lavant.client.publisher.store import PublicationStore
from lavant.core.errors import CorruptJournal
from lavant.core.ids import PublicationId
from lavant.core.publications.publication import Publication

SMALL = JournalConfig(segment_bytes=8 << 10, compaction_bytes_min=16 << 10)


def publication(number: int, size: int = 0) -> Publication:
    return Publication(id=PublicationId(str(number)), attributes={"n": number}, payload=bytes(size))


class Used:
    """A store with what its user knows."""

    def __init__(self, disk: Disk, config: JournalConfig = SMALL) -> None:
        self.unpublished: dict[int, Publication] = {}
        self.store = PublicationStore(disk, config, new_id=7, unpublished=lambda: list(self.unpublished.items()))
        self.unpublished.update(self.store.recovered)

    def receive(self, *tickets: int, size: int = 0) -> None:
        for ticket in tickets:
            self.unpublished[ticket] = publication(ticket, size)
            self.store.stage(ticket, encode_publication(self.unpublished[ticket]))

    def settle(self, *tickets: int) -> None:
        for ticket in tickets:
            del self.unpublished[ticket]
        self.store.settle(tickets)


def test_what_is_not_settled_is_there_again_in_order() -> None:
    disk = MemoryDisk()
    used = Used(disk)
    used.receive(1, 2, 3, 4)
    assert used.store.commit()
    used.settle(2)
    assert used.store.commit()
    again = Used(disk)
    assert again.store.recovered == {ticket: publication(ticket) for ticket in (1, 3, 4)}
    assert list(again.store.recovered) == [1, 3, 4]
    assert again.store.last_ticket == 4


def test_what_was_not_committed_is_not_there() -> None:
    disk = MemoryDisk()
    used = Used(disk)
    used.receive(1)
    assert Used(disk).store.recovered == {}


def test_segments_go_when_what_is_in_them_is_published() -> None:
    disk = MemoryDisk()
    used = Used(disk)
    sizes = []
    for ticket in range(1, 400):
        used.receive(ticket, size=300)
        assert used.store.commit()
        used.settle(ticket)
        sizes.append(sum(len(disk.read(name)) for name in disk.names()))
    assert used.store.commit()
    assert max(sizes) <= 6 * SMALL.segment_bytes
    again = Used(disk)
    assert again.store.recovered == {}
    assert again.store.last_ticket == 399


def test_the_highest_ticket_is_known_even_if_nothing_is_left_but_a_snapshot() -> None:
    disk = MemoryDisk()
    used = Used(disk)
    for ticket in range(1, 200):
        used.receive(ticket, size=300)
        used.settle(ticket)
        assert used.store.commit()
        assert Used(TornDisk.of(disk)).store.last_ticket == ticket
    assert any(name.startswith("snapshot") for name in disk.names())


@pytest.mark.parametrize("seed", range(40))
def test_power_may_fail_at_any_moment(seed: int) -> None:
    random = Random(seed)
    disk = TornDisk()
    used = Used(disk)
    durable: set[int] = set()
    """Committed, and not settled."""
    settled: set[int] = set()
    """Whose settling was committed."""
    last = 0
    for _ in range(10):
        disk.fail_in(random.randint(1, 60), random)
        settling: set[int] = set()
        with suppress(PowerFailure):
            while True:
                first, last = last + 1, last + random.randint(1, 20)
                used.receive(*range(first, last + 1), size=random.randrange(300))
                settling = set(random.sample(sorted(durable), random.randint(0, len(durable))))
                used.settle(*settling)
                assert used.store.commit()
                durable |= set(range(first, last + 1))
                durable -= settling
                settled |= settling
        disk.lose_power()
        used = Used(disk)
        recovered = set(used.store.recovered)
        assert durable - settling <= recovered <= set(range(1, last + 1)) - settled
        assert all(found.attributes == {"n": ticket} for ticket, found in used.store.recovered.items())
        durable = recovered


def test_folding_keeps_what_is_not_published() -> None:
    disk = MemoryDisk()
    used = Used(disk)
    random = Random(3)
    for ticket in range(1, 600):
        used.receive(ticket, size=random.randrange(400))
        assert used.store.commit()
        while len(used.unpublished) > 15:
            used.settle(random.choice(list(used.unpublished)))
    assert used.store.commit()
    assert any(name.startswith("snapshot") for name in disk.names())
    assert Used(disk).store.recovered == used.unpublished


def test_a_publication_that_is_being_stored_while_the_journal_is_folded_is_not_lost() -> None:
    disk = MemoryDisk()
    used = Used(disk)
    for first in range(1, 400, 40):
        used.receive(*range(first, first + 40), size=100)
        assert used.store.commit()  # folds now and then, with these in it
        assert Used(disk).store.recovered.keys() == used.unpublished.keys()
        used.settle(*range(first, first + 38))
    assert any(name.startswith("snapshot") for name in disk.names())


@pytest.mark.parametrize("segments", [1, 2])
def test_a_full_disk_is_no_loss_and_goes_on_when_there_is_room(segments: int) -> None:
    disk = MemoryDisk(capacity_bytes=segments * SMALL.segment_bytes + 2048)
    used = Used(disk)
    ticket = 0
    while True:
        ticket += 1
        used.receive(ticket, size=1000)
        if not used.store.commit():
            break
    assert ticket > 3 * segments
    assert not used.store.commit()
    assert Used(disk).store.recovered.keys() == set(range(1, ticket))
    disk.capacity_bytes = 100 << 10
    assert used.store.commit()
    assert Used(disk).store.recovered.keys() == set(range(1, ticket + 1))


def test_a_full_disk_makes_room_of_what_is_published() -> None:
    disk = MemoryDisk(capacity_bytes=36 << 10)
    used = Used(disk)
    for ticket in range(1, 500):
        used.receive(ticket, size=1000)
        assert used.store.commit(), f"full at {ticket}"
        used.settle(ticket)


def test_many_settled_are_several_records() -> None:
    records = encode_settled(range(1, 2 * TICKETS_MAX + 2))
    assert len(records) == 3
    assert replay(records) == ({}, 2 * TICKETS_MAX + 1)
    assert encode_settled([]) == []


@pytest.mark.parametrize("record", [b"", b"\x09", b"\x02123", b"\x01" + bytes(8) + b"\xc1"])
def test_a_record_that_no_publisher_writes_is_refused(record: bytes) -> None:
    with pytest.raises(CorruptJournal):
        replay([record])


def test_a_directory_of_something_else_is_refused() -> None:
    disk = MemoryDisk()
    journal, recovered = Journal.open(disk, SMALL, new_id=1)
    assert exhausted(recovered.records)
    journal.stage(b"{}")
    write = journal.begin()
    assert write is not None
    disk.write(write.name, write.offset, write.data)
    with pytest.raises(CorruptJournal, match="the directory belongs to something else"):
        Used(disk)


def exhausted(records: Iterator[bytes]) -> bool:
    return not list(records)
