"""What the disk can do just now: on shared machines there are times when it is slow, because somebody writes much."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

SYNCS = 40
SYNC_BYTES = 2048
QUICK_S = 0.0005
REST_S_MAX = 120.0
LOOK_EVERY_S = 1.0


class Probe:
    """A file to try it with. It must be filled first: writing over it is what a journal does."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._file, bytes(SYNCS * SYNC_BYTES), 0)
        os.fsync(self._file)
        self.syncs_s: list[float] = []
        """What was found."""

    def close(self) -> None:
        os.close(self._file)

    def is_quick(self) -> bool:
        """By the median of writing a little and syncing it."""
        taken = []
        for number in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(self._file, b"x" * SYNC_BYTES, number * SYNC_BYTES)
            os.fdatasync(self._file)
            taken.append(time.perf_counter() - began)
        self.syncs_s.append(float(np.median(taken)))
        return self.syncs_s[-1] < QUICK_S

    def wait_until_quick(self) -> None:
        """But not for ever."""
        deadline = time.monotonic() + REST_S_MAX
        while not self.is_quick() and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
