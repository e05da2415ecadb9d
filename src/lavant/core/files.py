"""Local paths, and files that are replaced atomically: after a crash, a file is complete or absent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from lavant.core.errors import InvalidValue

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(/[^/].*|/)", re.IGNORECASE | re.DOTALL)


def local_path(given: str | Path) -> Path:
    """Returns a path that was given as such or as `file:///…`; refuses any other URI.

    `Path` would take `hdfs://host/x` for a directory named `hdfs:`, and the user would find nothing where they look.

    >>> local_path("file:///data/log"), local_path("data/log")
    (PosixPath('/data/log'), PosixPath('data/log'))
    """
    text = str(given)
    scheme = _URI.match(text)
    if scheme is None:
        return Path(given)
    found = _FILE_URI.fullmatch(text)
    if found is None or "%" in text:
        raise InvalidValue(
            f"{text!r} is a URI ({scheme[1]}), and only paths of this machine's file system are supported, such as "
            "/data/out or file:///data/out; mount the storage here, or copy what it holds (a directory of such a name "
            "is given by its absolute path)"
        )
    return Path(found[1])


def replace_file(path: Path, parts: Iterable[bytes | memoryview], *, sync_name: bool = True) -> None:
    """Writes and syncs a temporary file, then renames it into place: under its name it is always complete.

    Without `sync_name`, a crash may lose the new name until the directory is synced.
    """
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync_name:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Makes creations and renames in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
