"""A disk in memory, gone with the process."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from lavant.core.errors import StorageFull


class MemoryDisk:
    """Files as byte arrays. With `capacity_bytes` it can be full.

    >>> disk = MemoryDisk()
    >>> disk.create("a", 4)
    >>> disk.write("a", 1, b"bc")
    >>> disk.read("a"), disk.read("a", 1, 2), disk.names()
    (b'\\x00bc\\x00', b'bc', ['a'])
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._files: dict[str, bytearray] = {}

    def names(self) -> list[str]:
        return sorted(self._files)

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else position + length
        return bytes(memoryview(self._file(name))[position:end])

    def create(self, name: str, size: int) -> None:
        if name in self._files:
            raise FileExistsError(errno.EEXIST, "a file of this name exists already", name)
        self._require_room(name, size)
        self._files[name] = bytearray(size)

    def write(self, name: str, position: int, data: bytes) -> None:
        file = self._file(name)
        assert position + len(data) <= len(file), "files do not grow"
        file[position : position + len(data)] = data

    def sync(self, name: str) -> None:
        self._file(name)

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        content = bytearray(b"".join(parts))
        self._require_room(name, len(content))
        self._files[name] = content

    def remove(self, name: str) -> None:
        self._file(name)
        del self._files[name]

    def _file(self, name: str) -> bytearray:
        file = self._files.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", name)
        return file

    def _require_room(self, name: str, size: int) -> None:
        if self.capacity_bytes is None:
            return
        free = self.capacity_bytes - sum(map(len, self._files.values()))
        if size > free:
            raise StorageFull(
                f"{name} needs {size} bytes, and of {self.capacity_bytes} only {free} are free; free some"
            )
