"""One directory, one process: a lock that goes with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lavant.core.errors import StorageLocked

LOCK = "lock"


def lock_directory(directory: Path) -> int:
    """Lock the directory and return what holds the lock: closing it gives it back. Raises `StorageLocked`."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise StorageLocked(
            f"{directory} is in use already, by process {holder or 'unknown'}; stop that one, "
            "or give this one a directory of its own"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    _sign(descriptor)
    return descriptor


def _sign(descriptor: int) -> None:
    """Only for the message to the next one: a full disk must not keep anybody from starting."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    except OSError:
        pass
