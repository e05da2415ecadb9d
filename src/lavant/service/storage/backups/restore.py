"""Restores a backup into an empty directory.

The manifest is written last, when everything else is on the disk and all checksums were right. So a server refuses a
directory whose restoration was interrupted, and a failed one leaves nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from lavant.broker.machine.start_time import MARK_FILE
from lavant.broker.storage.disks.locks import lock_directory
from lavant.broker.storage.journal.manifest import MANIFEST, is_segment, is_snapshot
from lavant.core.errors import CorruptSnapshot, InvalidValue
from lavant.core.files import make_directories, replace_file, sync_directory
from lavant.service.engines.factory import DIRECTORY as SPARK
from lavant.service.storage.backups.archive import ArchiveReader, BackupDescription, OnPart
from lavant.service.storage.directory_errors import disk_errors_explained

_LOG = re.compile(rf"{SPARK}/(?!\.\.?/)[^/\0]+/log/(\d{{20}}\.log|log\.json)")
_SYNC_BYTES = 64 << 20


def restore(backup: Path, directory: Path, on_part: OnPart = lambda size: None) -> BackupDescription:
    """Raises `InvalidValue` unless the directory is empty or missing, `CorruptSnapshot` if the backup is damaged."""
    if directory.exists() and not directory.is_dir():
        raise InvalidValue(f"{directory} is a file; give a new or empty directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise InvalidValue(f"{directory} is not empty; give a new or empty directory, so that nothing is overwritten")
    try:
        file = backup.open("rb")
    except OSError as error:
        raise InvalidValue(f"cannot read the backup {backup}: {error.strerror}") from None
    is_new = not directory.exists()
    with file, disk_errors_explained(directory):
        reader = ArchiveReader(file, backup)
        _check_names(reader.description, backup)
        make_directories(directory)
        lock = lock_directory(directory)
        try:
            _write(reader, directory, on_part)
        except BaseException:
            _empty(directory, is_new=is_new)
            raise
        finally:
            os.close(lock)
    return reader.description


def _write(reader: ArchiveReader, directory: Path, on_part: OnPart) -> None:
    manifest = b""
    for entry, parts in reader.files():
        if entry.name == MANIFEST:
            manifest = b"".join(parts)
        else:
            _write_file(directory / entry.name, parts, on_part)
    for place in (directory, *(path for path in directory.rglob("*") if path.is_dir())):
        sync_directory(place)
    replace_file(directory / MANIFEST, [manifest])


def _write_file(path: Path, parts: Iterator[bytes], on_part: OnPart) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        unsynced = 0
        for part in parts:
            file.write(part)
            on_part(len(part))
            unsynced += len(part)
            if unsynced >= _SYNC_BYTES:
                file.flush()
                os.fdatasync(file.fileno())
                unsynced = 0
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o600)


def _check_names(description: BackupDescription, backup: Path) -> None:
    """Only files of a data directory, each once: a backup must not write anywhere else."""
    names = [entry.name for entry in description.files]
    for name in names:
        if not (name in (MANIFEST, MARK_FILE) or is_segment(name) or is_snapshot(name) or _LOG.fullmatch(name)):
            raise CorruptSnapshot(f"the backup {backup} has {name!r}, which is no file of a data directory")
    if MANIFEST not in names or len(set(names)) < len(names):
        raise CorruptSnapshot(f"the backup {backup} lists no {MANIFEST}, or a file twice; take another copy of it")


def _empty(directory: Path, *, is_new: bool) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if is_new:
        directory.rmdir()
