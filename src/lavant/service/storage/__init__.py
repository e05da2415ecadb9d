"""Storage: real files, group commit, and compaction around the pure journal."""

from lavant.service.storage.files import FileDisk
from lavant.service.storage.memory import MemoryDisk
from lavant.service.storage.stores import JournalStore, Store, VolatileStore, open_store

__all__ = ["FileDisk", "JournalStore", "MemoryDisk", "Store", "VolatileStore", "open_store"]
