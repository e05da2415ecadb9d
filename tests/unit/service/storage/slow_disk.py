"""A disk in memory whose syncs wait until they are let go, fail, or pretend to be slow."""

from __future__ import annotations

import errno
from threading import Event

from lavant.broker.storage.disks import MemoryDisk


class SlowDisk(MemoryDisk):
    """`sync_s` is how long a sync takes by `clock`, which stands still otherwise."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.go = Event()
        self.go.set()
        self.error: str | None = None
        self.now_s = 0.0
        self.sync_s = 0.0
        self.writes: list[tuple[str, int]] = []
        self.synced: list[str] = []

    def write(self, name: str, position: int, data: bytes) -> None:
        self.writes.append((name, position))
        super().write(name, position, data)

    def sync(self, name: str) -> None:
        assert self.go.wait(30), "nobody let it go"
        if self.error is not None:
            raise OSError(errno.EIO, self.error)
        super().sync(name)
        self.now_s += self.sync_s
        self.synced.append(name)

    def clock(self) -> float:
        return self.now_s
