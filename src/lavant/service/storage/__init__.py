"""Storage: group commit and compaction around the pure journal, in the running loop."""

from lavant.service.storage.stores import JournalStore, RecordStore, VolatileStore, open_store

__all__ = ["JournalStore", "RecordStore", "VolatileStore", "open_store"]
