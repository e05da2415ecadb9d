"""Rescue of a damaged journal: the longest prefix that can be replayed, and a list of everything after it.

A record is meaningful only after all records before it: message numbers are counted, so an acknowledgement after a gap
could delete another message. The rescued prefix therefore ends before the first record that is missing, cannot be read
or cannot be applied, as if the server had stopped there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.replay import apply_again, replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.frames import decode_request
from lavant.broker.queues.accounting.quotas import UNLIMITED
from lavant.broker.storage.journal.config import JournalConfig
from lavant.broker.storage.journal.disk import Disk
from lavant.broker.storage.journal.manifest import MANIFEST, JournalManifest, segment_name, snapshot_name
from lavant.broker.storage.journal.salvage import Salvaged, SalvagedBlock, records_at
from lavant.broker.storage.journal.snapshots import read_snapshot


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of the journal that was not rescued."""

    why: str
    file: str = ""
    offset: int | None = None
    """Of its block in the file."""
    size_bytes: int | None = None
    first: int | None = None
    """The position of the record, or of the first of several."""
    last: int | None = None
    time_ms: int | None = None
    kind: str = ""
    """The command."""
    subject: str = ""
    """The queue, subscription, job type or topic of the command."""


class Rescued(msgspec.Struct, frozen=True):
    broker: BrokerState
    position: int
    """Of the last rescued record; 0 if there is none."""
    problem: str
    """Why it ends there; empty if the journal is complete."""


def rescue(disk: Disk, found: Salvaged, config: JournalConfig) -> tuple[Rescued, list[LeftOut]]:
    """The state before the first lost record, and the damaged snapshots."""
    start, chunks_of, damaged = 0, None, list[LeftOut]()
    for position in found.snapshots:
        manifest = JournalManifest(journal_id=found.journal_id, snapshot=position)
        problem = _problem_of(disk, manifest, config)
        if problem is None:
            start, chunks_of = position, manifest
            break
        damaged.append(LeftOut(problem, snapshot_name(position), first=1, last=position))
    rescued = _replayed(disk, found, start, chunks_of, config, upto=None)
    return rescued, damaged


def left_out(disk: Disk, found: Salvaged, rescued: Rescued) -> Iterator[LeftOut]:
    """Everything that was not rescued and can be read, in the order of the journal."""
    if found.manifest is None:
        yield LeftOut("it cannot be read, so records may be missing at the end", MANIFEST)
    for unreadable in found.unreadable:
        yield LeftOut(f"the file cannot be read: {unreadable.problem}", unreadable.file)
    for gap in found.gaps:
        yield LeftOut("these bytes are no whole block of this journal", gap.file, gap.offset, gap.length)
    expected = rescued.position + 1
    for block in found.blocks:
        if block.first > expected:
            yield LeftOut("these records are not there", first=expected, last=block.first - 1)
        for position, record in enumerate(records_at(disk, block, found.journal_id), block.first):
            if position > rescued.position:
                why = rescued.problem if position == rescued.position + 1 else "it comes after what is lost"
                yield _described(record, position, block, why)
        expected = max(expected, block.first + block.records)
    confirmed = 0 if found.manifest is None else max(found.manifest.durable, found.manifest.snapshot_position())
    if expected <= confirmed:
        yield LeftOut("these records were confirmed, and are not there", first=expected, last=confirmed)


def missing_segments(found: Salvaged, names: list[str]) -> list[str]:
    """Segments in the manifest without a file."""
    if found.manifest is None:
        return []
    return sorted({segment_name(number) for number in found.manifest.segments()} - {*names})


def _problem_of(disk: Disk, manifest: JournalManifest, config: JournalConfig) -> str | None:
    try:
        BrokerState.restore(read_snapshot(disk, manifest, config), UNLIMITED)
    except Exception as error:  # damaged bytes can raise anything
        return str(error)
    return None


def _replayed(
    disk: Disk,
    found: Salvaged,
    start: int,
    snapshot: JournalManifest | None,
    config: JournalConfig,
    *,
    upto: int | None,
) -> Rescued:
    """Apply records until one is lost, or up to a position that is known to work."""
    broker = replay(None if snapshot is None else read_snapshot(disk, snapshot, config), ())
    broker.queues.is_replay = True
    position = start
    for block in found.blocks:
        if block.first + block.records - 1 <= position:
            continue
        if block.first > position + 1:
            lost = _positions(position + 1, block.first - 1)
            return Rescued(broker, position, f"{lost} cannot be read, and later ones are there")
        records = records_at(disk, block, found.journal_id)
        for record in records[position + 1 - block.first :]:
            if position == upto:
                return Rescued(broker, position, "")
            try:
                apply_again(broker, record)
            except Exception as error:  # the state may be half changed: replay again, without this record
                before = _replayed(disk, found, start, snapshot, config, upto=position)
                return msgspec.structs.replace(before, problem=f"it cannot be applied: {error}")
            position += 1
    return Rescued(broker, position, "")


def _positions(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


def _described(record: bytes, position: int, block: SalvagedBlock, why: str) -> LeftOut:
    request: Any = None
    with suppress(Exception):  # damaged bytes can raise anything
        request = decode_request(memoryview(record)[TIME_BYTES:])
    about = next((value for name in _SUBJECTS if (value := getattr(request, name, None))), "")
    return LeftOut(
        why,
        block.file,
        block.offset,
        len(record),
        position,
        position,
        int.from_bytes(record[:TIME_BYTES], "big"),
        "" if request is None else type(request).__name__,
        str(about),
    )


_SUBJECTS = ("queue", "name", "job_type", "topic", "job")
