"""What a backup takes: the journal up to its last durable record, and the publication logs.

Segments only grow, snapshots never change, and a file that compaction removes stays readable while it is open. So a
backup of a running server opens all files at one moment and reads them afterwards, while the server goes on.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from lavant.broker.machine.start_time import MARK_FILE
from lavant.broker.storage.disks import FileDisk, OverlayDisk
from lavant.broker.storage.journal import Journal, JournalConfig
from lavant.broker.storage.journal.manifest import MANIFEST
from lavant.core.errors import InvalidValue, StorageFailed
from lavant.service.engines.factory import DIRECTORY as SPARK
from lavant.service.storage.backups.archive import Backup, SourceFile
from lavant.service.storage.check import held
from lavant.service.storage.directory_errors import checked_directory, explained

_LOGS = f"{SPARK}/*/log/*"


def open_backup(journal: Journal, directory: Path) -> Backup:
    """A backup of an open journal. For a running server, call it in the event loop, where the journal does not change.

    The logs are listed last, so they hold everything that the journal says was accepted.
    """
    manifest, files = journal.durable_files()
    sources = [_in_memory(MANIFEST, manifest.encode())]
    try:
        for name, size_bytes in files.items():
            sources.append(_open(directory, directory / name, size_bytes))
        if (directory / MARK_FILE).exists():
            sources.append(_in_memory(MARK_FILE, (directory / MARK_FILE).read_bytes()))
        for path in sorted(directory.glob(_LOGS)):
            try:
                sources.append(_open(directory, path))
            except FileNotFoundError:
                continue  # all of it was delivered
    except OSError as error:
        _close(sources)
        remedy = "raise its limit (ulimit -n)" if error.errno == errno.EMFILE else "check the disk"
        raise StorageFailed(f"{error.filename} could not be opened ({error.strerror}); {remedy}") from error
    except BaseException:
        _close(sources)
        raise
    return Backup(
        sources,
        version=version("lavant"),
        created_ms=time.time_ns() // 1_000_000,
        journal_id=journal.identity,
        position=journal.durable,
    )


@contextmanager
def stopped_backup(directory: Path) -> Iterator[Backup]:
    """A backup of a data directory that no server uses; it is opened as a server would, and not changed."""
    checked_directory(directory)
    with held(directory), explained(directory):
        disk = FileDisk(directory, lock=False)
        if MANIFEST not in disk.names():
            raise InvalidValue(
                f"{directory} is not a data directory: it has no {MANIFEST}; give the directory that "
                "`lavant serve --data` was given"
            )
        journal, recovered = Journal.open(OverlayDisk(disk), JournalConfig(directory=str(directory)))
        deque(recovered.records, maxlen=0)
        with open_backup(journal, directory) as backup:
            yield backup


def _in_memory(name: str, content: bytes) -> SourceFile:
    return SourceFile(name, len(content), content)


def _open(directory: Path, path: Path, size_bytes: int | None = None) -> SourceFile:
    descriptor = os.open(path, os.O_RDONLY)
    size = os.fstat(descriptor).st_size if size_bytes is None else size_bytes
    return SourceFile(str(path.relative_to(directory)), size, descriptor)


def _close(sources: list[SourceFile]) -> None:
    for source in sources:
        if isinstance(source.content, int):
            os.close(source.content)
