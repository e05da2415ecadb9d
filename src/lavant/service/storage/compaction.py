"""The compaction process, which runs at low priority.

    python -m lavant.service.storage.compaction DIRECTORY UPTO

writes a snapshot of the broker up to record UPTO next to the journal of a running server, and prints its size in bytes.
The process ends when its standard input does, so it never outlives its server.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from threading import Thread

from lavant.broker.machine.replay import fold
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import JournalConfig, compact
from lavant.core.errors import LavantError
from lavant.service.storage.housekeeping import FAILED, STATUS_OF

_NICENESS = 19


def main(directory: Path, upto: int) -> int:
    os.nice(_NICENESS)
    gc.disable()  # the queues grow to millions of objects without a cycle among them
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        disk = FileDisk(directory, lock=False)
        size_bytes = compact(disk, upto, fold, JournalConfig(directory=str(directory)))
    except LavantError as error:
        print(error, file=sys.stderr)
        return STATUS_OF.get(type(error), FAILED)
    print(size_bytes)
    return 0


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(FAILED)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
