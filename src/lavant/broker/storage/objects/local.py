"""Objects as files below a local directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lavant.broker.storage.objects.interface import Parts, checked_name
from lavant.core.errors import StorageFailed
from lavant.core.files import make_directories, replace_file, sync_directory, write_partial

PARTIAL = ".partial"
"""Ends the names of files that are not complete."""
ATTEMPTS_MAX = 10

T = TypeVar("T")


class LocalStorage:
    """A directory, which need not exist yet: it is made with the first object.

    >>> import tempfile
    >>> storage = LocalStorage(Path(tempfile.mkdtemp()))
    >>> storage.create("a/b", [b"text"]), storage.create("a/b", [b"other"])
    (True, False)
    >>> storage.names(), storage.read("a/b", 1, 2)
    (['a/b'], b'ex')
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[Path]]:
        return LocalStorage, (self._root.absolute(),)  # another process works in another directory

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def address(self) -> str:
        return str(self._root.absolute())

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            with self.path(name).open("rb") as file:
                if start:
                    file.seek(start)
                return file.read(-1 if length is None else length)
        except (IsADirectoryError, NotADirectoryError):
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self.path(name))) from None
        except PermissionError as error:
            raise StorageFailed(f"cannot read {self.path(name)}: {error.strerror}; check its permissions") from None

    def write(self, name: str, parts: Parts) -> None:
        self._in_its_directory(name, list(parts), replace_file)

    def create(self, name: str, parts: Parts) -> bool:
        path = self.path(name)
        if path.exists():
            return False
        partial = self._in_its_directory(name, list(parts), write_partial)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise StorageFailed(
                f"cannot create {path}: {error.strerror}; its file system must support hard links"
            ) from None
        finally:
            partial.unlink()
        sync_directory(path.parent)
        return True

    def names(self, prefix: str = "", after: str = "") -> list[str]:
        folder, _, _ = prefix.rpartition("/")
        found: list[str] = []
        _collect(self._root / folder, f"{folder}/" if folder else "", prefix, found)
        return sorted(name for name in found if name > after) if after else sorted(found)

    def remove(self, name: str) -> None:
        """Empty directories are removed with their last object, except the root."""
        path = self.path(name)
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, NotADirectoryError, PermissionError):
            if not path.is_dir() and path.parent.is_dir():
                raise
            return
        for parent in path.parents:
            if parent == self._root:
                break
            try:
                parent.rmdir()
            except OSError:
                break

    def size(self, name: str) -> int | None:
        path = self.path(name)
        try:
            return path.stat().st_size if path.is_file() else None
        except FileNotFoundError:
            return None

    def below(self, prefix: str) -> LocalStorage:
        return LocalStorage(self._root / checked_name(prefix))

    def path(self, name: str) -> Path:
        return self._root / checked_name(name)

    def _in_its_directory(
        self, name: str, parts: list[bytes | memoryview], write: Callable[[Path, list[bytes | memoryview]], T]
    ) -> T:
        """Write an object, and make its directory before: again if another process just removes that as empty."""
        path = self.path(name)
        for attempt in range(ATTEMPTS_MAX):
            try:
                make_directories(path.parent)
                return write(path, parts)
            except FileNotFoundError:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
            except (PermissionError, NotADirectoryError, FileExistsError) as error:
                if isinstance(error, FileExistsError) and attempt < ATTEMPTS_MAX - 1:
                    continue  # the directory was there, and was gone when Python looked what it is
                raise StorageFailed(f"cannot write {path}: {error.strerror}; choose another place") from None
        raise AssertionError


def _collect(directory: Path, before: str, prefix: str, found: list[str]) -> None:
    """Add the names of files below a directory whose own name, with a slash, is `before`."""
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        name = before + entry.name
        if entry.is_dir():
            if name.startswith(prefix) or prefix.startswith(name + "/"):
                _collect(directory / entry.name, name + "/", prefix, found)
        elif name.startswith(prefix) and not name.endswith(PARTIAL):
            found.append(name)
