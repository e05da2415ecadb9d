"""A file that can lose power: synced data stays, and of the rest any sectors may survive or not.

A sector (512 bytes) is written atomically. Until a sync, the disk may have any version since the last one: for each
sector written meanwhile the file keeps the versions, so that a crash can go back to one of them.

                     write 1     write 2          sync up to write 1     crash
    sector 7    A ──────────► B ──────────► C      B or C are possible    one of them stays
"""

from __future__ import annotations

from enum import Enum
from random import Random

from lavant.broker.storage.journal.disk import SECTOR_BYTES


class Survival(Enum):
    """What a crash leaves of unsynced writes."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    A_BEGINNING = "a beginning"
    """The first writes completely, one torn, and none of the later ones: a disk that keeps the order."""
    ANYTHING = "anything"
    """Each sector in any of its versions, independently of others: a disk that keeps no order."""


class SectoredFile:
    """Contents as a program sees them, and as they would be after a power loss."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self._before: dict[int, list[tuple[int, bytes]]] = {}
        """For each sector with unsynced writes: their numbers, and the sector as it was before each."""

    def write(self, number: int, position: int, data: bytes) -> None:
        """Numbers of writes count up over the whole disk."""
        content, before = self.content, self._before
        last = (position + len(data) - 1) // SECTOR_BYTES
        for sector in range(position // SECTOR_BYTES, last + 1):
            version = bytes(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            before.setdefault(sector, []).append((number, version))
        content[position : position + len(data)] = data

    def settle(self, number: int) -> None:
        """All writes up to this one are durable."""
        left = {
            sector: later
            for sector, versions in self._before.items()
            if (later := [version for version in versions if version[0] > number])
        }
        self._before = left

    def durable(self) -> bytes:
        """The contents without any unsynced write."""
        content = self.content[:]
        for sector, versions in self._before.items():
            content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = versions[0][1]
        return bytes(content)

    @property
    def sectors_unsynced(self) -> int:
        return len(self._before)

    def lose_power(self, survival: Survival, random: Random) -> int:
        """Revert to the disk's state, and return how many sectors lost something."""
        numbers = sorted({number for versions in self._before.values() for number, _ in versions})
        torn = numbers[int(random.random() * len(numbers))] if numbers else 0
        lost = 0
        for sector, versions in sorted(self._before.items()):
            kept = _writes_kept(versions, survival, torn, random)
            if kept < len(versions):
                self.content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = versions[kept][1]
                lost += 1
        self._before.clear()
        return lost


def _writes_kept(versions: list[tuple[int, bytes]], survival: Survival, torn: int, random: Random) -> int:
    """How many of a sector's writes, the first ones, have reached the disk."""
    if survival is Survival.NOTHING:
        return 0
    if survival is Survival.EVERYTHING:
        return len(versions)
    if survival is Survival.ANYTHING:
        return int(random.random() * (len(versions) + 1))
    whole = sum(number < torn for number, _ in versions)
    is_in_torn = any(number == torn for number, _ in versions)
    return whole + (is_in_torn and random.random() < 0.5)
