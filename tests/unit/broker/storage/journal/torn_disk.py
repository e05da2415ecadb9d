"""A disk in memory that loses power: what was synced stays, and of the other sectors any may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from lavant.broker.storage.disks import MemoryDisk
from lavant.broker.storage.journal import SECTOR_BYTES

Keep = Callable[[int], bool]


class PowerFailure(BaseException):
    """In the middle of an operation; no code may take it for an error."""


class TornDisk(MemoryDisk):
    """`fail_in` lets the n-th changing operation from now fail; `lose_power` then leaves what is on the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._left: int | None = None
        self._random = Random(0)
        self._before: dict[tuple[str, int], bytes] = {}
        """Unsynced sectors, as they were."""
        self._removed: dict[str, bytearray] = {}
        """Removals are durable at some later time."""

    def fail_in(self, operations: int, random: Random) -> None:
        self._left = operations
        self._random = random

    def lose_power(self, keep: Keep | None = None) -> None:
        """`keep` says of each unsynced sector, in order, whether it is there; by default chance does."""
        self._left = None
        for number, ((name, sector), before) in enumerate(sorted(self._before.items())):
            kept = self._chance() if keep is None else keep(number)
            if not kept and name in self._files:
                super().write(name, sector * SECTOR_BYTES, before)
        self._before.clear()
        for name, file in sorted(self._removed.items()):
            if name not in self._files and self._chance():
                self._files[name] = file
        self._removed.clear()

    def unsynced(self) -> int:
        return len(self._before)

    def cut(self, name: str, start: int, end: int) -> None:
        """Zeros, as if this was never written."""
        super().write(name, start, bytes(end - start))

    def flip(self, name: str, position: int, bit: int) -> None:
        self._file(name)[position] ^= 1 << bit

    @classmethod
    def of(cls, disk: MemoryDisk) -> TornDisk:
        """A copy, to do something to it."""
        copy = cls()
        for name in disk.names():
            copy._files[name] = bytearray(disk.read(name))
        return copy

    def create(self, name: str, size: int) -> None:
        if self._fails():
            if self._chance():
                super().create(name, self._random.randint(0, size))
            raise PowerFailure
        super().create(name, size)
        self._removed.pop(name, None)

    def write(self, name: str, position: int, data: bytes) -> None:
        for sector in range(position // SECTOR_BYTES, -(-(position + len(data)) // SECTOR_BYTES)):
            self._before.setdefault((name, sector), self.read(name, sector * SECTOR_BYTES, SECTOR_BYTES))
        super().write(name, position, data)
        if self._fails():
            raise PowerFailure

    def sync(self, name: str) -> None:
        if self._fails():
            raise PowerFailure
        super().sync(name)
        self._before = {place: before for place, before in self._before.items() if place[0] != name}

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        fails = self._fails()
        if not fails or self._chance():
            super().replace(name, parts)
        if fails:
            raise PowerFailure

    def remove(self, name: str) -> None:
        fails = self._fails()
        if not fails or self._chance():
            self._removed[name] = self._file(name)
            super().remove(name)
        if fails:
            raise PowerFailure

    def _fails(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        return self._left == 0

    def _chance(self) -> bool:
        return self._random.random() < 0.5
