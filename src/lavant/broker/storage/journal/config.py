"""Settings of a journal."""

from __future__ import annotations

import msgspec

from lavant.broker.storage.journal.blocks import block_bytes
from lavant.broker.storage.journal.disk import SECTOR_BYTES
from lavant.core.errors import InvalidValue

MB = 1 << 20
SEGMENT_BYTES_MIN = 8 * SECTOR_BYTES
SEGMENT_GROWTH = 4


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of a server; existing files keep their size."""

    segment_bytes: int = 64 * MB
    """Per file, at most. A record must fit into it, and one file is always kept as a spare."""
    first_segment_bytes: int = MB
    """Of the first file, if less. Each further file is `SEGMENT_GROWTH` times as large as the one before."""
    block_bytes_max: int = 8 * MB
    """Written and synced at once, unless a single record is larger."""
    compaction_bytes_min: int = 256 * MB
    """Compaction starts when it could fold more than this, and more than the last snapshot."""
    directory: str = ""
    """Location of the files, only for messages."""

    def __post_init__(self) -> None:
        if self.segment_bytes < SEGMENT_BYTES_MIN or self.segment_bytes % SECTOR_BYTES:
            raise InvalidValue(
                f"journal segment_bytes must be a multiple of {SECTOR_BYTES}, at least {SEGMENT_BYTES_MIN}, "
                f"got {self.segment_bytes}"
            )
        if self.first_segment_bytes < SEGMENT_BYTES_MIN or self.first_segment_bytes % SECTOR_BYTES:
            raise InvalidValue(
                f"journal first_segment_bytes must be a multiple of {SECTOR_BYTES}, at least {SEGMENT_BYTES_MIN}, "
                f"got {self.first_segment_bytes}"
            )
        if self.block_bytes_max < SECTOR_BYTES:
            raise InvalidValue(f"journal block_bytes_max must be at least {SECTOR_BYTES}, got {self.block_bytes_max}")
        if self.compaction_bytes_min < 0:
            raise InvalidValue(f"journal compaction_bytes_min must not be negative, got {self.compaction_bytes_min}")

    def next_segment_bytes(self, last_bytes: int, needed_bytes: int) -> int:
        """The size of the next segment, after one of `last_bytes`, for a block of `needed_bytes`.

        A new journal is small, and one that is used gets large segments soon: a server that writes little takes little
        disk, and one that writes much rarely has to wait for a new file.

        >>> sizes = [JournalConfig().next_segment_bytes(last, 0) // MB for last in (0, MB, 4 * MB, 16 * MB, 64 * MB)]
        >>> sizes, JournalConfig().next_segment_bytes(MB, 20 * MB) // MB
        ([1, 4, 16, 64, 64], 20)
        """
        grown = max(self.first_segment_bytes, SEGMENT_GROWTH * last_bytes, needed_bytes)
        return min(self.segment_bytes, grown)

    @property
    def record_bytes_max(self) -> int:
        return self.segment_bytes - block_bytes(1, 0)

    def path(self, name: str) -> str:
        """The name of a file in messages."""
        return f"{self.directory}/{name}" if self.directory else name


DEFAULT = JournalConfig()
