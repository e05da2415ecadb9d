"""Explains errors of data directories to operators: what is wrong, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lavant.core.errors import CorruptJournal, CorruptSnapshot, InvalidValue, NewerFormat, StorageFailed, StorageFull

_REMEDIES = {
    errno.EACCES: "give the user that runs the server the right to read and write it, or use another directory",
    errno.EPERM: "give the user that runs the server the right to read and write it, or use another directory",
    errno.EROFS: "its file system is mounted read-only; mount it writable, or use another directory",
    errno.ENOTDIR: "a part of the path is a file; give --data a directory",
    errno.EEXIST: "it is a file; give --data a directory",
    errno.ENOENT: "it is gone; mount its disk, or restore it from a copy",
    errno.ENAMETOOLONG: "give --data a shorter path",
    errno.EIO: "the disk fails; replace it, and restore the directory from a copy",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_DIRECTORY = (errno.EEXIST, errno.ENOTDIR)


@contextmanager
def explained(directory: Path | None) -> Iterator[None]:
    """While a data directory is opened: errors of its disk, and of damage, have a remedy."""
    if directory is None:
        yield
        return
    try:
        with disk_errors_explained(directory):
            yield
    except NewerFormat:
        raise
    except (CorruptJournal, CorruptSnapshot) as error:
        raise type(error)(f"{error}. `lavant check {directory}` says more, and can save the intact part") from error


@contextmanager
def disk_errors_explained(directory: Path) -> Iterator[None]:
    """While a data directory is read or written, turns errors of the system into Lavant's own, with a remedy."""
    try:
        yield
    except OSError as error:
        path = directory if error.filename is None else error.filename
        if error.errno in _FULL:
            raise StorageFull(f"there is no space for {path} ({error.strerror}); free space on the disk") from error
        remedy = _REMEDIES.get(error.errno or 0, "check it, or use another directory")
        kind = InvalidValue if error.errno in _NO_DIRECTORY else StorageFailed
        raise kind(f"{path} cannot be used ({error.strerror}): {remedy}") from error


def checked_directory(directory: Path) -> None:
    """Raise unless it is an existing directory."""
    if directory.is_dir():
        return
    if directory.exists():
        raise InvalidValue(f"{directory} is a file; give the directory that `lavant serve --data` was given")
    raise InvalidValue(f"{directory} does not exist; give the directory that `lavant serve --data` was given")
