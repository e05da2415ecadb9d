"""The files of a journal: checks that they are complete, removes leftovers, and applies changes crash-safely."""

from __future__ import annotations

from lavant.broker.storage.journal.blocks import find_header
from lavant.broker.storage.journal.config import JournalConfig
from lavant.broker.storage.journal.disk import Disk
from lavant.broker.storage.journal.manifest import (
    MANIFEST,
    JournalManifest,
    decode_manifest,
    is_segment,
    is_snapshot,
    segment_name,
    snapshot_name,
)
from lavant.broker.storage.journal.segments import SegmentUpkeep
from lavant.core.errors import CorruptJournal, StorageFull


def read_manifest(disk: Disk, config: JournalConfig) -> JournalManifest | None:
    """The manifest of the journal on this disk, or None if there is no journal. Raises `CorruptJournal`."""
    names = disk.names()
    if MANIFEST not in names:
        ours = [name for name in names if is_segment(name) or is_snapshot(name)]
        if ours:
            raise CorruptJournal(
                f"{config.path(MANIFEST)} is missing, and {ours[0]} is there; restore the manifest from a copy, "
                "or start in an empty directory"
            )
        return None
    manifest = decode_manifest(disk.read(MANIFEST), config)
    missing = sorted({*_needed(manifest)} - {*names})
    if missing:
        raise CorruptJournal(
            f"{config.path(missing[0])} is missing, and {len(missing) - 1} more; restore the files from a copy"
        )
    return manifest


def clean_up(disk: Disk, manifest: JournalManifest, config: JournalConfig) -> None:
    """Remove the leftovers of a crash: segments and snapshots that the manifest does not name (any more, or yet)."""
    needed = _needed(manifest)
    left = [name for name in disk.names() if name not in needed and (is_segment(name) or is_snapshot(name))]
    for name in left:
        if name > segment_name(manifest.last_segment) and is_segment(name):
            _require_unused(disk, name, manifest, config)
    for name in left:
        disk.remove(name)


def apply_upkeep(disk: Disk, upkeep: SegmentUpkeep) -> None:
    """Change the files. A crash between any two steps leaves a journal with all its records."""
    if upkeep.create is not None:
        disk.create(upkeep.create, upkeep.size_bytes)
    try:
        disk.replace(MANIFEST, [upkeep.manifest.encode()])
    except StorageFull:
        if upkeep.create is not None:
            disk.remove(upkeep.create)
        raise
    for name in upkeep.remove:
        disk.remove(name)


def _needed(manifest: JournalManifest) -> list[str]:
    names = [segment_name(number) for number in manifest.segments()]
    return names if manifest.snapshot is None else [*names, snapshot_name(manifest.snapshot)]


def _require_unused(disk: Disk, name: str, manifest: JournalManifest, config: JournalConfig) -> None:
    """A segment is named by the manifest before it is used; if it was used, the manifest is outdated."""
    if find_header(disk.read(name), 0, manifest.journal_id, 0) is not None:
        raise CorruptJournal(
            f"{config.path(name)} has records, and {MANIFEST} does not name it: the manifest is older than the "
            "segments; restore all files from one copy"
        )
