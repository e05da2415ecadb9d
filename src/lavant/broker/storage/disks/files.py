"""A real disk: the files of one directory.

Segments are filled with zeros on creation, down to the disk. A write then changes no metadata, and its `fdatasync`
waits for the data only, which takes about two thirds of the time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from lavant.broker.storage.disks.locks import LOCK, lock_directory
from lavant.core.errors import StorageFull
from lavant.core.files import sync_directory

_PARTIAL = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ZEROS = bytes(1 << 20)
_SYNC_BYTES = 8 << 20
"""Large files are synced each time after this many bytes: all at once would delay the syncs of other files."""


class FileDisk:
    """The files of a directory, created if necessary; locked unless another object holds the lock."""

    def __init__(self, directory: Path, *, lock: bool = True) -> None:
        self.directory = directory
        self._descriptors: dict[str, int] = {}
        self._lock: int | None = None
        if not directory.is_dir():
            directory.mkdir(parents=True)
            sync_directory(directory.parent)
        if lock:
            self._lock = lock_directory(directory)
            for left in directory.glob(f"*{_PARTIAL}"):
                left.unlink()

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name != LOCK and not name.endswith(_PARTIAL))

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        with (self.directory / name).open("rb", buffering=0) as file:
            file.seek(position)
            if length is None:
                return file.readall()
            parts = []
            while length and (part := file.read(length)):
                parts.append(part)
                length -= len(part)
            return b"".join(parts)

    def create(self, name: str, size: int) -> None:
        if (self.directory / name).exists():
            raise FileExistsError(errno.EEXIST, "a file of this name exists already", str(self.directory / name))
        self._put(name, lambda descriptor: _write_zeros(descriptor, size))

    def write(self, name: str, position: int, data: bytes) -> None:
        _write(self._descriptor(name), position, data)

    def sync(self, name: str) -> None:
        os.fdatasync(self._descriptor(name))

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        self._put(name, lambda descriptor: _write_parts(descriptor, parts))

    def remove(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        (self.directory / name).unlink()

    def close(self) -> None:
        """Close all files and release the lock."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _descriptor(self, name: str) -> int:
        """Descriptor of a file that is written to; kept open for the next write."""
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            descriptor = self._descriptors[name] = os.open(self.directory / name, os.O_RDWR)
        return descriptor

    def _put(self, name: str, fill: Callable[[int], None]) -> None:
        """Write a file under a temporary name, sync it, and rename it, so that it is always complete."""
        path = self.directory / name
        partial = self.directory / (name + _PARTIAL)
        try:
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                fill(descriptor)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException as error:
            partial.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _FULL:
                raise StorageFull(f"there is no space for {path} ({error.strerror}); free some") from error
            raise
        partial.replace(path)
        sync_directory(self.directory)


def _write(descriptor: int, position: int, data: bytes) -> None:
    written = os.pwrite(descriptor, data, position)
    while written < len(data):  # a signal or a full disk may cut it short; the latter is an error the next time
        written += os.pwrite(descriptor, memoryview(data)[written:], position + written)


def _write_parts(descriptor: int, parts: Iterable[bytes]) -> None:
    position = synced = 0
    for part in parts:
        _write(descriptor, position, part)
        position += len(part)
        if position - synced >= _SYNC_BYTES:
            os.fdatasync(descriptor)
            synced = position


def _write_zeros(descriptor: int, size: int) -> None:
    # Allocated first, so that a disk without space says so before it has taken half of the zeros.
    os.posix_fallocate(descriptor, 0, size)
    _write_parts(descriptor, (_ZEROS[: size - position] for position in range(0, size, len(_ZEROS))))
