"""Appends to the publication log."""

from __future__ import annotations

import os
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Self

import pyarrow as pa

from lavant.broker.storage.log.blocks import encode_block, file_name, files_of, read_block, scan_blocks
from lavant.broker.storage.log.identity import keep_identity
from lavant.core.errors import CorruptSnapshot, InvalidValue
from lavant.core.files import local_path, sync_directory

FILE_BYTES_MAX = 256 << 20


class LogWriter:
    """The only writer of a log. `append` returns when the publications are on disk, if `durable`.

    >>> import tempfile
    >>> from lavant.core.publications.batch import PublicationBatch
    >>> with LogWriter(Path(tempfile.mkdtemp())) as log:
    ...     log.append(PublicationBatch.from_dicts([{"a": 1}, {"a": 2}]).records), log.end
    (0, 2)

    A new log gets the given identity or a unique one. An existing log must have the one given.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = True,
        file_bytes_max: int = FILE_BYTES_MAX,
        identity: str | None = None,
        start: int = 0,
    ) -> None:
        """A new log begins at offset `start`."""
        directory = local_path(directory)
        self._directory = directory
        self._durable = durable
        self._file_bytes_max = file_bytes_max
        directory.mkdir(parents=True, exist_ok=True)
        self.identity = keep_identity(directory, identity)
        self.end = start
        """The offset of the next publication."""
        files = files_of(directory)
        if files:
            self._file = self._recover(files[-1])
        else:
            self._file = self._new_file()

    def append(self, records: pa.RecordBatch) -> int:
        """Append publications and return the offset of the first."""
        if records.num_rows == 0:
            raise InvalidValue("there are no publications to append")
        first = self.end
        block = encode_block(records, first)
        if self._file.tell() and self._file.tell() + len(block) > self._file_bytes_max:
            self.close()
            self._file = self._new_file()
        self._write(block)
        self.end = first + records.num_rows
        return first

    def trim(self, offset: int) -> None:
        """Delete the files that hold only publications before an offset, which are no longer needed."""
        if offset == self.end and self._file.tell() > self._file_bytes_max // 16:  # all of it, and worth a new file
            self.close()
            self._file = self._new_file()
        files = files_of(self._directory)
        for path, following in pairwise(files):
            if int(following.stem) > offset:
                break
            path.unlink()

    def cut(self, offset: int) -> None:
        """Truncate the log at an offset where an `append` began; the rest was never confirmed."""
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
        if self.end != offset:
            raise CorruptSnapshot(
                f"the log {self._directory} should continue at publication {offset}, but its readable part ends "
                f"at {self.end}; restore its files from a copy"
            )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
