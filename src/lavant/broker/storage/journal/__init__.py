"""The journal: records that are confirmed when they are durable, and recovered after a crash.

Pure: it reads and writes through the `Disk` protocol, which real files, memory and the simulation's disk implement.
"""

from lavant.broker.storage.journal.compaction import Fold, compact, write_snapshot
from lavant.broker.storage.journal.config import JournalConfig
from lavant.broker.storage.journal.disk import SECTOR_BYTES, Disk
from lavant.broker.storage.journal.files import apply_upkeep
from lavant.broker.storage.journal.journal import Journal, RecoveredJournal, Write
from lavant.broker.storage.journal.segments import SegmentUpkeep

__all__ = [
    "SECTOR_BYTES",
    "Disk",
    "Fold",
    "Journal",
    "JournalConfig",
    "RecoveredJournal",
    "SegmentUpkeep",
    "Write",
    "apply_upkeep",
    "compact",
    "write_snapshot",
]
