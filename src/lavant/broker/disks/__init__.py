"""Disks of a journal: the files of a directory, memory, one over another. The simulation has its own, which tears."""

from lavant.broker.disks.files import FileDisk
from lavant.broker.disks.memory import MemoryDisk
from lavant.broker.disks.overlay import OverlayDisk

__all__ = ["FileDisk", "MemoryDisk", "OverlayDisk"]
