"""Disks of a journal: a directory of files, memory, and an overlay. The simulation has its own, with torn writes."""

from lavant.broker.storage.disks.files import FileDisk
from lavant.broker.storage.disks.memory import MemoryDisk
from lavant.broker.storage.disks.overlay import OverlayDisk

__all__ = ["FileDisk", "MemoryDisk", "OverlayDisk"]
