"""Disks of a journal: the files of a directory, memory, one over another. The simulation has its own, which tears."""

from lavant.broker.storage.disks.files import FileDisk
from lavant.broker.storage.disks.memory import MemoryDisk
from lavant.broker.storage.disks.overlay import OverlayDisk

__all__ = ["FileDisk", "MemoryDisk", "OverlayDisk"]
