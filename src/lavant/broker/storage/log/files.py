"""A log in files of a local directory; `blocks.py` describes them."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from io import FileIO
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from lavant.broker.storage.log.blocks import (
    BlockExtent,
    LogBatch,
    LogBlock,
    encode_block,
    file_name,
    files_of,
    read_block,
    scan_blocks,
)
from lavant.core.errors import CorruptSnapshot
from lavant.core.files import sync_directory


class FileAppender:
    """Appends blocks to the last file, or to a new one when that is full."""

    def __init__(self, directory: Path, *, durable: bool, file_bytes_max: int, start: int) -> None:
        self._directory = directory
        self._durable = durable
        self._file_bytes_max = file_bytes_max
        self.end = start
        files = files_of(directory)
        self._file = self._recover(files[-1]) if files else self._new_file()

    def append(self, records: pa.RecordBatch) -> int:
        first = self.end
        block = encode_block(records, first)
        if self._file.tell() and self._file.tell() + len(block) > self._file_bytes_max:
            self.close()
            self._file = self._new_file()
        self._write(block)
        self.end = first + records.num_rows
        return first

    def trim(self, offset: int) -> None:
        if offset == self.end and self._file.tell() > self._file_bytes_max // 16:  # all of it, and worth a new file
            self.close()
            self._file = self._new_file()
        files = files_of(self._directory)
        for path, following in pairwise(files):
            if int(following.stem) > offset:
                break
            path.unlink()

    def cut(self, offset: int) -> None:
        while self.end > offset:
            path = files_of(self._directory)[-1]
            kept = [block for block in scan_blocks(path) if block.first_offset < offset]
            self.close()
            if not kept and int(path.stem) > offset:
                path.unlink()
                self._file = self._recover(files_of(self._directory)[-1])
                continue
            os.truncate(path, kept[-1].position + kept[-1].length if kept else 0)
            self._file = self._recover(path)
            os.fsync(self._file.fileno())
            break

    def close(self) -> None:
        self._file.close()

    def _write(self, block: bytes) -> None:
        """Write the whole block or, if the disk is full, nothing of it: the next one must not follow half of it."""
        position = self._file.tell()
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            if self._durable:
                os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(position)
            self._file.seek(position)
            raise

    def _new_file(self) -> FileIO:
        path = self._directory / file_name(self.end)
        file = path.open("ab", buffering=0)
        sync_directory(self._directory)
        return file

    def _recover(self, path: Path) -> FileIO:
        """Open the last file after its last complete block; a torn one is cut off."""
        self.end = int(path.stem)
        whole = 0
        for block in scan_blocks(path):
            try:
                read_block(block)
            except CorruptSnapshot:
                if block.position + block.length < path.stat().st_size:
                    raise
                break
            self.end = block.first_offset + block.publications
            whole = block.position + block.length
        if whole < path.stat().st_size:
            os.truncate(path, whole)
        return path.open("ab", buffering=0)


class FileBlocks:
    """The blocks of the files, by their headers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blocks: list[LogBlock] = []
        self._starts: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    @property
    def start(self) -> int:
        return self._starts[0]

    @property
    def end(self) -> int:
        return self._blocks[-1].first_offset + self._blocks[-1].publications if self._blocks else 0

    def part(self, start: int, end: int) -> None:
        """Headers of files are cheap: they are all read."""

    def extents(self, start: int, end: int) -> list[BlockExtent]:
        chosen = self._blocks[bisect_right(self._starts, start) - 1 : bisect_left(self._starts, end)]
        return [BlockExtent(block.first_offset, block.publications, block.length) for block in chosen]

    def read(self, start: int, end: int) -> Iterator[LogBatch]:
        number = bisect_right(self._starts, start) - 1
        while start < end:
            block = self._blocks[number]
            records = read_block(block)
            first = start - block.first_offset
            count = min(end, block.first_offset + block.publications) - start
            yield LogBatch(start, records.slice(first, count))
            start += count
            number += 1

    def refresh(self) -> None:
        """Find new blocks of the last file, and new files."""
        files = files_of(self._directory)
        self._forget_trimmed(files)
        last = self._blocks[-1] if self._blocks else None
        for path in files:
            if last is not None and path < last.path:
                continue
            position = last.position + last.length if last is not None and path == last.path else 0
            for block in _blocks_of(path, position):
                if self._blocks and block.first_offset != self.end:
                    raise CorruptSnapshot(
                        f"the log {self._directory} jumps from publication {self.end} to "
                        f"{block.first_offset} in {path.name}: publications are missing; restore its files from a "
                        "copy"
                    )
                self._blocks.append(block)
                self._starts.append(block.first_offset)

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
