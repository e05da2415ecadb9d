"""Local paths, and files that are replaced atomically: after a crash, a file is complete or absent."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable
from pathlib import Path

from lavant.core.errors import InvalidValue
from lavant.core.identities import new_identity

DIRECT_BYTES = 1 << 20
"""Files of at least this size bypass the page cache, in blocks of this size."""

_ALIGNMENT = 4096
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(/[^/].*|/)", re.IGNORECASE | re.DOTALL)
_SECRETS = re.compile(r"(?<=/)[^/@]*@|\?.*", re.DOTALL)


def is_uri(place: str) -> bool:
    """Whether this is a URI of storage that is not local.

    >>> is_uri("s3://bucket/log"), is_uri("file:///data/log"), is_uri("data/log")
    (True, False, False)
    """
    scheme = _URI.match(place)
    return scheme is not None and scheme[1].lower() != "file"


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
            f"{_SECRETS.sub('', text)!r} is a URI ({scheme[1]}), and only paths of this machine's file system are "
            "supported, such as /data/out or file:///data/out (or, for a directory of such a name, its absolute path)"
        )
    return Path(found[1])


def replace_file(path: Path, parts: Iterable[bytes | memoryview], *, sync_name: bool = True) -> None:
    """Writes and syncs a temporary file, then renames it into place: under its name it is always complete.

    Without `sync_name`, a crash may lose the new name until the directory is synced.
    """
    partial = write_partial(path, parts)
    try:
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if sync_name:
        sync_directory(path.parent)


def write_partial(path: Path, parts: Iterable[bytes | memoryview]) -> Path:
    """Writes and syncs a file beside `path`, and returns it.

    Its name is its own, ends in `.partial`, and starts with a dot, so that Spark and others who read all files of the
    directory leave it out.
    """
    partial = path.with_name(f".{path.name}.{new_identity()[:12]}.partial")
    try:
        with partial.open("wb", buffering=0) as file:
            _write_parts(file.fileno(), list(parts))
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


_blocks: list[memoryview] = []
"""Memory for direct writes, which must be aligned to pages: as many blocks as were ever in use at once."""


def _write_parts(descriptor: int, parts: list[bytes | memoryview]) -> None:
    """Writes to an empty file, directly if it becomes large.

    The page cache would need new pages for everything that is written, and where the machine is virtual, the kernel may
    take longer to get a page than the disk takes to write it.
    """
    size = sum(memoryview(part).nbytes for part in parts)
    if size < DIRECT_BYTES or not _set_direct(descriptor, True):
        for part in parts:
            _write_all(descriptor, memoryview(part).cast("B"))
        return
    block = _blocks.pop() if _blocks else memoryview(mmap.mmap(-1, DIRECT_BYTES))
    try:
        _write_directly(descriptor, parts, block)
    finally:
        _blocks.append(block)


def _write_directly(descriptor: int, parts: list[bytes | memoryview], block: memoryview) -> None:
    filled = 0
    for part in parts:
        rest = memoryview(part).cast("B")
        while len(rest):
            taken = min(len(rest), len(block) - filled)
            block[filled : filled + taken] = rest[:taken]
            filled, rest = filled + taken, rest[taken:]
            if filled == len(block):
                _write_all(descriptor, block)
                filled = 0
    whole = filled - filled % _ALIGNMENT
    _write_all(descriptor, block[:whole])
    _set_direct(descriptor, False)
    _write_all(descriptor, block[whole:filled])


def _write_all(descriptor: int, data: memoryview) -> None:
    while len(data):
        written = os.write(descriptor, data)
        if written % _ALIGNMENT:
            _set_direct(descriptor, False)  # the disk is nearly full: what is left is not aligned
        data = data[written:]


def _set_direct(descriptor: int, is_direct: bool) -> bool:
    """Whether the file system, and the operating system, can do it."""
    if not hasattr(os, "O_DIRECT"):
        return False
    import fcntl  # noqa: PLC0415  # where there is O_DIRECT, there is this

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if is_direct else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True


def make_directories(path: Path) -> None:
    """Makes a directory and its parents, durably."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for directory in missing:
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Makes creations and renames in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
