"""The journal against a list: whatever is torn, flipped or lost, what was confirmed is there, or it is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.unit.broker.storage.journal.journals import commit, compacted, contents, keep_up, opened
from tests.unit.broker.storage.journal.torn_disk import PowerFailure, TornDisk

from lavant.broker.storage.journal import SECTOR_BYTES, Journal, JournalConfig, Write
from lavant.core.errors import CorruptJournal

CONFIG = JournalConfig(segment_bytes=16_384, first_segment_bytes=4096, block_bytes_max=4096, compaction_bytes_min=0)

# Among others records that look like nothing, or nearly so, and would hide that a sector is missing.
SIZE = st.integers(0, 1500)
RECORD = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda byte, count: bytes([byte]) * count, st.sampled_from([0, 1, 255]), st.integers(0, 2000)),
    st.builds(lambda before, after: bytes(before) + b"\1" + bytes(after), SIZE, SIZE),
    st.builds(lambda seed, size: Random(seed).randbytes(size), st.integers(0, 99), st.integers(400, 2500)),
)
GROUP = st.lists(RECORD, min_size=1, max_size=4)
GROUPS = st.lists(GROUP, max_size=6)


def written(groups: list[list[bytes]], *, compact_after: int | None = None) -> tuple[Journal, TornDisk, list[bytes]]:
    """A journal with these groups, each confirmed, and all their records."""
    disk = TornDisk()
    journal, _ = opened(disk, CONFIG)
    keep_up(journal, disk)
    for number, group in enumerate(groups):
        commit(journal, disk, group)
        if number == compact_after:
            compacted(journal, disk, CONFIG)
    return journal, disk, [record for group in groups for record in group]


def begun(journal: Journal, disk: TornDisk, group: list[bytes]) -> Write:
    """The group is written and not synced."""
    for record in group:
        journal.stage(record)
    write = journal.begin()
    assert write is not None
    disk.write(write.name, write.offset, write.data)
    return write


@given(groups=GROUPS, tries=st.lists(GROUP, min_size=1, max_size=3), again=GROUP, data=st.data())
def test_any_sectors_of_a_block_that_was_not_synced_may_be_lost(
    groups: list[list[bytes]], tries: list[list[bytes]], again: list[bytes], data: st.DataObject
) -> None:
    """Again and again: what one try left must not get into the way of the next."""
    journal, disk, confirmed = written(groups)
    for group in tries:
        write = begun(journal, disk, group)
        tried = group[: write.last - len(confirmed)]
        kept = data.draw(st.sets(st.integers(0, disk.unsynced() - 1)), "sectors that reached the disk")
        is_whole = len(kept) == disk.unsynced()
        disk.lose_power(lambda sector, kept=kept: sector in kept)  # type: ignore[misc]
        # Power may be lost once more while the journal clears away what it found.
        disk.fail_in(data.draw(st.integers(1, 3), "operation"), Random(data.draw(st.integers(0, 9), "chance")))
        try:
            opened(disk, CONFIG)
        except PowerFailure:
            event("power lost while recovering")
        disk.lose_power()
        journal, records = opened(disk, CONFIG)
        assert records in (confirmed, confirmed + tried)
        assert records == confirmed + tried or not is_whole
        confirmed = records
    commit(journal, disk, again)
    assert contents(disk, CONFIG) == confirmed + again


@given(groups=GROUPS, last=GROUP, data=st.data())
def test_a_write_may_end_at_any_byte(groups: list[list[bytes]], last: list[bytes], data: st.DataObject) -> None:
    journal, disk, confirmed = written(groups)
    write = begun(journal, disk, last)
    disk.sync(write.name)
    length = data.draw(st.integers(0, len(write.data)), "bytes that reached the disk")
    disk.cut(write.name, write.offset + length, write.offset + len(write.data))
    assert contents(disk, CONFIG) in (confirmed, confirmed + last[: write.last - len(confirmed)])


@given(groups=st.lists(GROUP, min_size=1, max_size=6), compact_after=st.integers(0, 8), data=st.data())
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(
    groups: list[list[bytes]], compact_after: int, data: st.DataObject
) -> None:
    journal, disk, confirmed = written(groups, compact_after=compact_after)
    if data.draw(st.booleans(), "closed"):
        disk.replace("manifest", [journal.closing().manifest.encode()])
    name = data.draw(st.sampled_from(disk.names()), "file")
    content = disk.read(name)
    filled = len(content.rstrip(b"\0"))  # behind that there are many zeros, and only now and then one is worth a try
    end = data.draw(st.sampled_from([len(content), min(len(content), filled + SECTOR_BYTES)]), "end")
    disk.flip(name, data.draw(st.integers(0, end - 1), "byte"), data.draw(st.integers(0, 7), "bit"))
    try:
        records = contents(disk, CONFIG)
    except CorruptJournal:
        event("refused")
        return
    event("accepted")
    assert records == confirmed


def test_every_single_bit_of_a_small_journal_is_refused_or_changes_nothing() -> None:
    groups = [[b"first", b"\0" * 500], [b"second " * 80, b""], [b"last" * 150]]
    disk = TornDisk()
    journal, _ = opened(disk)
    for group in groups:
        commit(journal, disk, group)
    confirmed = [record for group in groups for record in group]
    filled = len(disk.read("segment-0000000001").rstrip(b"\0"))
    image = {name: disk.read(name) for name in disk.names()}
    accepted = 0
    for position in range(filled + 60):
        for bit in range(8):
            disk.flip("segment-0000000001", position, bit)
            try:
                assert contents(disk) == confirmed, (position, bit)
                accepted += 1
            except CorruptJournal:
                pass
            for name, content in image.items():
                if disk.read(name) != content:
                    disk.replace(name, [content])
    assert 0 < accepted < 8 * filled, "filler may be damaged, content may not"


@given(groups=st.lists(GROUP, min_size=2, max_size=6), data=st.data())
def test_sectors_of_confirmed_blocks_that_others_follow_are_missed(
    groups: list[list[bytes]], data: st.DataObject
) -> None:
    """Not a flipped bit but a lost or foreign sector."""
    _, disk, confirmed = written(groups)
    names = [name for name in disk.names() if name.startswith("segment") and disk.read(name).strip(b"\0")]
    name = data.draw(st.sampled_from(names), "file")
    sectors = len(disk.read(name).rstrip(b"\0")) // SECTOR_BYTES
    blocks = [i for i in range(sectors) if disk.read(name, i * SECTOR_BYTES, 8) == b"LVBLOCK1"]
    last = blocks[-1] if name == names[-1] else sectors
    if last == 0:
        return
    sector = data.draw(st.integers(0, last - 1), "sector")
    filling = data.draw(st.sampled_from([bytes(SECTOR_BYTES), b"\xee" * SECTOR_BYTES]), "filling")
    disk.write(name, sector * SECTOR_BYTES, filling)
    try:
        assert contents(disk, CONFIG) == confirmed, "it may have been a sector of filler"
    except CorruptJournal:
        event("refused")


STEP = st.one_of(GROUP, st.sampled_from(["compact", "reopen", "close"]))


@given(steps=st.lists(STEP, max_size=12), crashes=st.lists(st.integers(1, 25), max_size=4), seed=st.integers(0, 2**32))
def test_a_crash_within_any_operation_loses_nothing_that_was_confirmed(
    steps: list[list[bytes] | str], crashes: list[int], seed: int
) -> None:
    run_with_crashes(steps, crashes, Random(seed))


@pytest.mark.soak
@given(steps=st.lists(STEP, max_size=40), crashes=st.lists(st.integers(1, 40), max_size=10), seed=st.integers(0, 2**32))
def test_many_crashes_lose_nothing_that_was_confirmed(
    steps: list[list[bytes] | str], crashes: list[int], seed: int
) -> None:
    run_with_crashes(steps, crashes, Random(seed))


def run_with_crashes(steps: list[list[bytes] | str], crashes: list[int], random: Random) -> None:
    """After each crash the next is armed, so that recovery is struck as well."""
    disk = TornDisk()
    model = Model()
    pending = list(crashes)
    arm(disk, pending, random)
    journal: Journal | None = None
    for step in [*steps, "reopen"]:
        while True:
            try:
                if journal is None or step == "reopen":
                    journal, records = opened(disk, CONFIG)
                    model.check(records)
                take(journal, disk, step, model)
                break
            except PowerFailure:
                journal = None
                disk.lose_power()
                arm(disk, pending, random)
                if isinstance(step, list):
                    break
    disk.lose_power()
    model.check(contents(disk, CONFIG))


def arm(disk: TornDisk, pending: list[int], random: Random) -> None:
    if pending:
        disk.fail_in(pending.pop(0), random)


def take(journal: Journal, disk: TornDisk, step: list[bytes] | str, model: Model) -> None:
    if isinstance(step, list):
        model.tried = step
        commit(journal, disk, step)
        model.confirm()
    elif step == "compact" and journal.durable > journal.closing().manifest.snapshot_position():
        compacted(journal, disk, CONFIG)
    elif step == "close":
        disk.replace("manifest", [journal.closing().manifest.encode()])


class Model:
    """What was confirmed, and what was tried when a crash came."""

    def __init__(self) -> None:
        self.confirmed: list[bytes] = []
        self.tried: list[bytes] = []

    def confirm(self) -> None:
        self.confirmed += self.tried
        self.tried = []

    def check(self, records: list[bytes]) -> None:
        """All that was confirmed, then a beginning of what was tried: some blocks of it may have been written."""
        count = len(self.confirmed)
        assert records[:count] == self.confirmed
        assert records[count:] == self.tried[: len(records) - count]
        self.confirmed, self.tried = records, []


def test_every_crash_point_of_a_compaction_leaves_a_whole_journal() -> None:
    records = [b"%d " % number + b"r" * 400 for number in range(40)]
    operation = 0
    struck = True
    while struck:
        operation += 1
        for seed in range(8):
            disk = TornDisk()
            journal, _ = opened(disk)
            for record in records[:20]:
                commit(journal, disk, [record])
            compacted(journal, disk)
            for record in records[20:]:
                commit(journal, disk, [record])
            disk.fail_in(operation, Random(seed))
            try:
                compacted(journal, disk)
                commit(journal, disk, [b"after"])
                struck = False
            except PowerFailure:
                struck = True
            disk.lose_power()
            journal, found = opened(disk)
            assert found[:40] == records
            assert found[40:] in ([], [b"after"])
            commit(journal, disk, [b"more"])
            assert contents(disk) == [*found, b"more"]
    assert operation > 6
