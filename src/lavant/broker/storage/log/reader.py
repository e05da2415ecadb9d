"""Reads the publication log from any offset, while it grows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from lavant.broker.storage.log.blocks import LogBlock, files_of, read_block, scan_blocks
from lavant.broker.storage.log.identity import check_log
from lavant.core.errors import CorruptSnapshot, InvalidValue
from lavant.core.files import local_path
from lavant.core.identities import UNKNOWN


class LogBatch(NamedTuple):
    """Consecutive publications, and the offset of the first."""

    first_offset: int
    records: pa.RecordBatch


class LogReader:
    """A view of a log that another process may be writing. Only headers are kept in memory.

    It is a view of *one* log: that with the given identity, or else the one found first. Another log at the same path
    is an error, because its offsets name other publications.
    """

    def __init__(self, directory: str | Path, identity: str = UNKNOWN) -> None:
        self._directory = local_path(directory)
        self._identity = identity
        self._blocks: list[LogBlock] = []
        self._starts: list[int] = []

    @property
    def identity(self) -> str:
        """`UNKNOWN` until there is a log that has one."""
        self._check_identity()
        return self._identity

    def end(self) -> int:
        """The offset after the last complete publication."""
        self._refresh()
        return self._known_end()

    def start(self) -> int:
        """The offset of the first publication that is kept; the end, if there is none."""
        end = self.end()
        return self._starts[0] if self._starts else end

    def blocks(self, start: int, end: int) -> list[LogBlock]:
        """The blocks that hold the publications from `start` up to `end`."""
        self._check_range(start, end)
        if start >= end:
            return []
        return self._blocks[bisect_right(self._starts, start) - 1 : bisect_left(self._starts, end)]

    def read(self, start: int, end: int) -> Iterator[LogBatch]:
        """The publications from `start` up to `end`."""
        self._check_range(start, end)
        number = bisect_right(self._starts, start) - 1
        while start < end:
            block = self._blocks[number]
            records = read_block(block)
            first = start - block.first_offset
            count = min(end, block.first_offset + block.publications) - start
            yield LogBatch(start, records.slice(first, count))
            start += count
            number += 1

    def _check_range(self, start: int, end: int) -> None:
        self._check_identity()
        if end > self._known_end() and end > self.end():
            raise InvalidValue(f"the log {self._directory} ends at offset {self._known_end()}, asked for {end}")
        if start < end and start < self._starts[0]:
            raise InvalidValue(f"the log {self._directory} starts at offset {self._starts[0]}, asked for {start}")

    def _known_end(self) -> int:
        return self._blocks[-1].first_offset + self._blocks[-1].publications if self._blocks else 0

    def _refresh(self) -> None:
        """Find new blocks of the last file, and new files."""
        self._check_identity()
        files = files_of(self._directory)
        self._forget_trimmed(files)
        last = self._blocks[-1] if self._blocks else None
        for path in files:
            if last is not None and path < last.path:
                continue
            position = last.position + last.length if last is not None and path == last.path else 0
            for block in _blocks_of(path, position):
                if self._blocks and block.first_offset != self._known_end():
                    raise CorruptSnapshot(
                        f"the log {self._directory} jumps from publication {self._known_end()} to "
                        f"{block.first_offset} in {path.name}: publications are missing; restore its files from a "
                        "copy"
                    )
                self._blocks.append(block)
                self._starts.append(block.first_offset)

    def _check_identity(self) -> None:
        found = check_log(self._directory, self._identity)
        if self._identity == UNKNOWN:
            self._identity = found

    def _forget_trimmed(self, files: list[Path]) -> None:
        """Forget removed files; if the last one is removed, even its end is unknown."""
        if self._blocks and self._blocks[-1].path not in files:
            self._blocks, self._starts = [], []
        elif self._blocks and self._blocks[0].path < files[0]:
            self._blocks = [block for block in self._blocks if block.path >= files[0]]
            self._starts = [block.first_offset for block in self._blocks]


def _blocks_of(path: Path, position: int) -> list[LogBlock]:
    try:
        return list(scan_blocks(path, position))
    except FileNotFoundError:  # trimmed since it was listed
        return []
