"""Objects as files that can be read by parts, wherever they are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

from lavant.broker.storage.objects.interface import ObjectStorage
from lavant.broker.storage.objects.local import LocalStorage
from lavant.core.files import is_uri, local_path

BUFFER_BYTES = 1 << 20


class StoredFile(NamedTuple):
    """One object of a storage; as text, it is shown without secrets."""

    storage: ObjectStorage
    name: str

    @classmethod
    def at(cls, place: str | Path) -> StoredFile:
        """The file at a path or URI."""
        from lavant.broker.storage.objects import open_storage  # noqa: PLC0415

        if not is_uri(str(place)):
            path = local_path(place).absolute()
            shown = local_path(place)
            return cls(LocalStorage(shown.parent if shown.name == path.name else path.parent), path.name)
        from lavant.broker.storage.objects.uris import decoded, parse_uri  # noqa: PLC0415

        open_storage(place)  # which refuses what is no text
        uri = parse_uri(str(place))
        folder, _, name = uri.path.rstrip("/").rpartition("/")
        return cls(open_storage(uri._replace(path=folder).text), decoded(name))

    def __str__(self) -> str:
        return self.storage.below(self.name).uri

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    def exists(self) -> bool:
        return bool(self.name) and self.storage.size(self.name) is not None

    def open(self) -> io.BufferedReader:
        """The content; a missing object is a `FileNotFoundError`."""
        path = self.storage.path(self.name)
        if path is not None:
            return path.open("rb")
        size = self.storage.size(self.name)
        if size is None:
            raise FileNotFoundError(2, "there is no such object", str(self))
        return io.BufferedReader(_Remote(self.storage, self.name, size), BUFFER_BYTES)


class _Remote(io.RawIOBase):
    """Reads ranges of an object."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        self._storage = storage
        self._name = name
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        part = self._storage.read(self._name, self._position, len(buffer)) if self._position < self._size else b""
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)
