"""A cache of remote objects on this machine's disk, so that they can be memory-mapped.

    $LAVANT_CACHE/segment-….lavant      an object whose name says its content

Any number of processes share the directory. An object is written under a name of its own and renamed, so it is always
complete, and whoever opens it checks its content. Beyond `LAVANT_CACHE_BYTES` the objects unused for longest are
deleted; a process that has mapped one keeps its mapping.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lavant.broker.storage.objects.interface import ObjectStorage
from lavant.core.errors import CorruptSnapshot, InvalidValue, StorageFailed, StorageFull
from lavant.core.identities import new_identity

BYTES_MAX = 10 << 30
"""Unless `LAVANT_CACHE_BYTES` says otherwise."""
PART_BYTES = 64 << 20
"""Fetched at once."""
PARTIAL = ".partial"
ATTEMPTS_MAX = 50
"""An object may be deleted by another process between its arrival and its opening."""

T = TypeVar("T")


class ObjectCache:
    """Objects that are named by their content: one name never has two contents."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max

    def open(self, storage: ObjectStorage, name: str, opened: Callable[[Path], T]) -> T:
        """What `opened` makes of the object's local file. It raises `CorruptSnapshot` if the content is not the
        name's: then the object is fetched again, once.
        """
        path = self._directory / name.rpartition("/")[2]
        is_fresh = False
        for _ in range(ATTEMPTS_MAX):
            try:
                os.utime(path)
            except OSError:
                self._fetch(storage, name, path)
                is_fresh = True
            try:
                return opened(path)
            except FileNotFoundError:
                continue
            except CorruptSnapshot as error:
                path.unlink(missing_ok=True)
                if is_fresh:
                    raise CorruptSnapshot(f"{storage.uri} {name} is damaged: {error}; restore it from a copy") from None
        raise StorageFailed(
            f"the cache {self._directory} loses objects before they are opened; raise LAVANT_CACHE_BYTES, now "
            f"{self._bytes_max}"
        )

    def _fetch(self, storage: ObjectStorage, name: str, path: Path) -> None:
        _make_private(self._directory)
        partial = path.with_name(f"{path.name}.{os.getpid()}.{new_identity()[:12]}.partial")
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                start = 0
                while part := storage.read(name, start, PART_BYTES):
                    file.write(part)
                    start += len(part)
                    if len(part) < PART_BYTES:
                        break
            partial.replace(path)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StorageFull(
                    f"no room for {name} in the cache {self._directory}; set LAVANT_CACHE to a directory elsewhere"
                ) from None
            raise
        finally:
            partial.unlink(missing_ok=True)
        self._evict(path)

    def _evict(self, arrived: Path) -> None:
        """Delete what was unused for longest, except the newest, until the rest fits."""
        entries: list[tuple[int, str, int]] = []
        with os.scandir(self._directory) as found:
            for entry in found:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted by another process
                    continue
                entries.append((status.st_mtime_ns, entry.path, status.st_size))
        excess = sum(size for _, _, size in entries) - self._bytes_max
        for _, path, size in sorted(entries):
            if excess <= 0:
                break
            if path != str(arrived) and not _is_arriving(path):
                Path(path).unlink(missing_ok=True)
                excess -= size


def _is_arriving(path: str) -> bool:
    """Whether a process fetches this object just now; one that was killed has left it."""
    if not path.endswith(PARTIAL):
        return False
    try:
        os.kill(int(path.split(".")[-3]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def shared_cache() -> ObjectCache:
    """The cache of this user, by the environment."""
    given = os.environ.get("LAVANT_CACHE")
    directory = Path(given) if given else Path(tempfile.gettempdir()) / f"lavant-cache-{os.getuid()}"
    text = os.environ.get("LAVANT_CACHE_BYTES") or str(BYTES_MAX)
    if not text.isdecimal() or int(text) == 0:
        raise InvalidValue(f"LAVANT_CACHE_BYTES is a number of bytes such as {BYTES_MAX}, got {text!r}")
    return ObjectCache(directory, int(text))


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise StorageFailed(
            f"cannot use the cache {directory}: {error.strerror}; set LAVANT_CACHE to a directory of your own"
        ) from None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise StorageFailed(
            f"the cache {directory} belongs to another user, or others may write to it; set LAVANT_CACHE to a "
            "directory of your own"
        )
