"""Disks of a journal: the files of a directory, and memory. The simulation has one of its own, which tears."""

from lavant.broker.disks.files import FileDisk
from lavant.broker.disks.memory import MemoryDisk

__all__ = ["FileDisk", "MemoryDisk"]
