"""The journal: records that are confirmed when they are durable, and are there again after a crash.

Pure: what it reads and writes it reads and writes through the `Disk` protocol, which real files, memory, and the
simulation's disk fulfil.
"""

from lavant.broker.storage.journal.compaction import Fold, compact, write_snapshot
from lavant.broker.storage.journal.config import JournalConfig
from lavant.broker.storage.journal.disk import SECTOR_BYTES, Disk
from lavant.broker.storage.journal.files import carry_out
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
    "carry_out",
    "compact",
    "write_snapshot",
]
