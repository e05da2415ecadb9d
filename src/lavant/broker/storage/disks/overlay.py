"""A disk over another one: writes stay in memory, and the disk below is only read."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from lavant.broker.storage.journal.disk import Disk


class OverlayDisk:
    """Lets you open a journal without changing it.

    >>> from lavant.broker.storage.disks.memory import MemoryDisk
    >>> below = MemoryDisk()
    >>> below.create("a", 2)
    >>> disk = OverlayDisk(below)
    >>> disk.write("a", 0, b"x")
    >>> disk.read("a"), below.read("a")
    (b'x\\x00', b'\\x00\\x00')
    """

    def __init__(self, below: Disk) -> None:
        self._below = below
        self._own: dict[str, bytearray] = {}
        self._removed: set[str] = set()

    def names(self) -> list[str]:
        return sorted({*self._below.names(), *self._own} - self._removed)

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        own = self._own.get(name)
        if own is not None:
            return bytes(memoryview(own)[position : None if length is None else position + length])
        self._require(name)
        return self._below.read(name, position, length)

    def create(self, name: str, size: int) -> None:
        if name in self.names():
            raise FileExistsError(errno.EEXIST, "a file of this name exists already", name)
        self._put(name, bytearray(size))

    def write(self, name: str, position: int, data: bytes) -> None:
        own = self._own.get(name)
        if own is None:
            own = self._own[name] = bytearray(self.read(name))
        assert position + len(data) <= len(own), "files do not grow"
        own[position : position + len(data)] = data

    def sync(self, name: str) -> None:
        self._require(name)

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        self._put(name, bytearray(b"".join(parts)))

    def remove(self, name: str) -> None:
        self._require(name)
        self._own.pop(name, None)
        self._removed.add(name)

    def _put(self, name: str, content: bytearray) -> None:
        self._own[name] = content
        self._removed.discard(name)

    def _require(self, name: str) -> None:
        if name not in self.names():
            raise FileNotFoundError(errno.ENOENT, "there is no such file", name)
