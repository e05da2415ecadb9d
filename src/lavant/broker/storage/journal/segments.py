"""The segments of an open journal: sealed ones, the active one, and the spare.

sealed   sealed   active   spare
▓▓▓▓▓▓   ▓▓▓▓▓▓   ▓▓▓░░░   ░░░░░░
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lavant.broker.storage.journal.manifest import JournalManifest, segment_name, snapshot_name


class Extent(NamedTuple):
    """How far a segment is filled."""

    number: int
    first: int
    """The position of its first record, present or future."""
    filled_bytes: int
    size_bytes: int


class SegmentUpkeep(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the journal's files; `apply_upkeep` makes it."""

    manifest: JournalManifest
    """As it is afterwards."""
    create: str | None = None
    size_bytes: int = 0
    remove: tuple[str, ...] = ()


class Segments:
    """The manifest, and how far its segments are filled."""

    def __init__(self, manifest: JournalManifest, extents: list[Extent]) -> None:
        self.manifest = manifest
        self._extents = extents
        self._active = max((i for i, extent in enumerate(extents) if extent.filled_bytes), default=0)

    @property
    def active(self) -> Extent:
        return self._extents[self._active]

    @property
    def has_spare(self) -> bool:
        return self._active + 1 < len(self._extents)

    @property
    def room_bytes(self) -> int:
        """In the active segment."""
        return self.active.size_bytes - self.active.filled_bytes

    @property
    def sealed_bytes(self) -> int:
        return sum(extent.filled_bytes for extent in self._extents[: self._active])

    def fill(self, filled_bytes: int) -> None:
        """The active segment is filled up to there."""
        self._extents[self._active] = self.active._replace(filled_bytes=filled_bytes)

    def roll(self, first: int) -> None:
        """The spare becomes the active segment; `first` is its first record."""
        self._active += 1
        self._extents[self._active] = self.active._replace(first=first)

    def create_spare(self, durable: int, size_bytes: int) -> SegmentUpkeep:
        return create_segment(msgspec.structs.replace(self.manifest, durable=durable), size_bytes)

    def use_snapshot(self, durable: int, position: int, size_bytes: int) -> SegmentUpkeep:
        """Drop segments whose records are all in the snapshot; the active one stays."""
        dropped = sum(following.first <= position + 1 for following in self._extents[1 : self._active + 1])
        kept = self._extents[dropped]
        manifest = msgspec.structs.replace(
            self.manifest,
            first_segment=kept.number,
            first_position=kept.first,
            durable=durable,
            snapshot=position,
            snapshot_bytes=size_bytes,
        )
        remove = [segment_name(extent.number) for extent in self._extents[:dropped]]
        if self.manifest.snapshot is not None:
            remove.append(snapshot_name(self.manifest.snapshot))
        return SegmentUpkeep(manifest=manifest, remove=tuple(remove))

    def filled(self, durable: int) -> tuple[JournalManifest, list[Extent]]:
        """The segments that hold records, and the manifest of a journal that ends with them."""
        filled = self._extents[: self._active + 1] if self.active.filled_bytes else self._extents[: self._active]
        last = filled[-1].number if filled else self.manifest.first_segment - 1
        return msgspec.structs.replace(self.manifest, last_segment=last, durable=durable), filled

    def update(self, upkeep: SegmentUpkeep) -> None:
        """The upkeep was applied."""
        dropped = upkeep.manifest.first_segment - self.manifest.first_segment
        self.manifest = upkeep.manifest
        self._extents = self._extents[dropped:]
        self._active -= dropped
        if upkeep.create is not None:
            self._extents.append(Extent(upkeep.manifest.last_segment, 0, 0, upkeep.size_bytes))


def create_segment(manifest: JournalManifest, size_bytes: int) -> SegmentUpkeep:
    """A segment after the last one of this manifest."""
    number = manifest.last_segment + 1
    return SegmentUpkeep(
        manifest=msgspec.structs.replace(manifest, last_segment=number),
        create=segment_name(number),
        size_bytes=size_bytes,
    )
