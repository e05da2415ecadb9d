"""How the conformance suite opens each disk: a new one each time, on what the earlier ones left.

To add a disk, add its factory to `DISKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lavant.broker.storage.disks import FileDisk, MemoryDisk, OverlayDisk
from lavant.broker.storage.journal import Disk
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.disk.disk import DiskConfig, SimulatedDisk

Reopen = Callable[[], Disk]


def memory(directory: Path) -> Reopen:
    disk = MemoryDisk()
    return lambda: disk


def simulated(directory: Path) -> Reopen:
    """Each time after a loss of power."""
    disk = SimulatedDisk(SimulationContext(seed=1), "disk", DiskConfig())

    def reopen() -> SimulatedDisk:
        disk.lose_power()
        return disk

    return reopen


def files(directory: Path) -> Reopen:
    opened: list[FileDisk] = []

    def reopen() -> FileDisk:
        for disk in opened:
            disk.close()
        opened.append(FileDisk(directory / "data" / "journal"))
        return opened[-1]

    return reopen


def overlay(directory: Path) -> Reopen:
    """Over an empty one: what it holds is all its own."""
    disk = OverlayDisk(MemoryDisk())
    return lambda: disk


DISKS: dict[str, Callable[[Path], Reopen]] = {
    "memory": memory,
    "files": files,
    "simulated": simulated,
    "overlay": overlay,
}


def left_open(reopen: Reopen) -> None:
    """Give back what the last one holds."""
    disk = reopen()
    with suppress(AttributeError):
        disk.close()  # type: ignore[attr-defined]
