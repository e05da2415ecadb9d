"""What every storage of objects promises."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from lavant.core.errors import InvalidValue
from lavant.core.identities import new_identity

Parts = Iterable[bytes | memoryview]
PARTIAL = ".partial"
"""The end of the names of objects that are being written, which are not shown."""


class ObjectStorage(Protocol):
    """Named byte strings below a root: a directory, a bucket's prefix, a directory on HDFS.

    A name is a relative path with `/`, such as `slice-0003/delta-0000000012`. An object is complete as soon as it has
    its name. What cannot be reached, or may not be, is a `MissingComponent` that names the storage.
    """

    @property
    def uri(self) -> str:
        """Names the storage to people; it contains no secret."""

    @property
    def address(self) -> str:
        """Opens the same storage with `open_storage` in any process. It may contain secrets: do not show it."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of an object from `start` on, at most `length` of them: fewer if the object ends before.

        A missing object is a `FileNotFoundError`.
        """

    def write(self, name: str, parts: Parts) -> None:
        """Store an object, in place of another one of this name if there is one. Returns when it is durable."""

    def create(self, name: str, parts: Parts) -> bool:
        """Store an object unless there is one of this name, which then stays as it is and makes the result False."""

    def names(self, prefix: str = "", after: str = "") -> list[str]:
        """The names that start with `prefix` and sort after `after`, sorted."""

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""

    def size(self, name: str) -> int | None:
        """The object's size in bytes; None if there is none."""

    def below(self, prefix: str) -> ObjectStorage:
        """The storage whose root is the folder `prefix` of this one."""

    def path(self, name: str) -> Path | None:
        """The local file of an object, for memory maps; None if the storage is not local."""


def checked_name(name: str) -> str:
    """The name, if it is one.

    >>> checked_name("slice-0003/delta-0000000012")
    'slice-0003/delta-0000000012'
    """
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise InvalidValue(f"{name!r} is no name of an object: give a relative path without '..' and empty parts")
    return name


def partial_name(path: str) -> str:
    """A hidden name in the same folder, under which an object is written before it gets its own."""
    folder, _, last = path.rpartition("/")
    return f"{folder}/.{last}.{new_identity()[:12]}{PARTIAL}"
