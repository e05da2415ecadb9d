"""Files that are there whole or not at all, also after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, parts: Iterable[bytes | memoryview], *, sync_name: bool = True) -> None:
    """Write a file beside its name, sync it, and rename it into place: under its name it is always whole.

    Without `sync_name` the new name itself may be lost in a crash, until the directory is synced.
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
    """Make creations and renames below `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
