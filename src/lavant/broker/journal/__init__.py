"""The journal: records that are confirmed when they are durable, and are there again after a crash.

Pure: what it reads and writes it reads and writes through the `Disk` protocol, which real files, memory, and the
simulation's disk fulfil.
"""

from lavant.broker.journal.compaction import Fold, compact, write_snapshot
from lavant.broker.journal.config import JournalConfig
from lavant.broker.journal.disk import SECTOR_BYTES, Disk
from lavant.broker.journal.files import carry_out
from lavant.broker.journal.journal import Journal, Recovered, Write
from lavant.broker.journal.segments import Upkeep

__all__ = [
    "SECTOR_BYTES",
    "Disk",
    "Fold",
    "Journal",
    "JournalConfig",
    "Recovered",
    "Upkeep",
    "Write",
    "carry_out",
    "compact",
    "write_snapshot",
]
