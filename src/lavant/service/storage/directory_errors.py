"""Whether a directory can be a server's, in words: what the system says about files, for those who run a server."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lavant.core.errors import CorruptJournal, CorruptSnapshot, InvalidValue, StorageFailed, StorageFull

_REMEDIES = {
    errno.EACCES: "give the user that runs the server the right to read and write it, or use another directory",
    errno.EPERM: "give the user that runs the server the right to read and write it, or use another directory",
    errno.EROFS: "its file system is mounted read-only; mount it writable, or use another directory",
    errno.ENOTDIR: "a part of the path is a file; give --data a directory",
    errno.EEXIST: "it is a file; give --data a directory",
    errno.ENOENT: "it is gone; mount its disk, or restore it from a copy",
    errno.ENAMETOOLONG: "give --data a shorter path",
    errno.EIO: "the disk fails; look after it, and restore the directory from a copy",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def explained(directory: Path | None) -> Iterator[None]:
    """While a data directory is opened: errors of the system as errors of Lavant's own, and where to go from there."""
    if directory is None:
        yield
        return
    try:
        yield
    except (CorruptJournal, CorruptSnapshot) as error:
        raise type(error)(f"{error}. `lavant check {directory}` says more, and can save what is whole") from error
    except OSError as error:
        place = directory if error.filename is None else error.filename
        if error.errno in _FULL:
            raise StorageFull(f"there is no room for {place} ({error.strerror}); make room on the disk") from error
        remedy = _REMEDIES.get(error.errno or 0, "look after it, or use another directory")
        raise StorageFailed(f"{place} cannot be used ({error.strerror}): {remedy}") from error


def checked_directory(directory: Path) -> None:
    """Raise unless it is there, and a directory."""
    if directory.is_dir():
        return
    if directory.exists():
        raise InvalidValue(f"{directory} is a file; give the directory that `lavant serve --data` was given")
    raise InvalidValue(f"{directory} is not there; give the directory that `lavant serve --data` was given")
