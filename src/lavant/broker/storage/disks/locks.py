"""Locks a directory for one process; the lock ends with the process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lavant.core.errors import StorageLocked

LOCK = "lock"


def lock_directory(directory: Path) -> int:
    """Lock the directory and return the lock's descriptor; closing it releases the lock. Raises `StorageLocked`."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise StorageLocked(
            f"{directory} is in use already, by process {holder or 'unknown'}; stop that one, or give this one a "
            "directory of its own"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    _sign(descriptor)
    return descriptor


def _sign(descriptor: int) -> None:
    """Only for the message to the next process: a full disk must not prevent a start."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    except OSError:
        pass
