"""`lavant check`: opens a data directory as a server does, over a disk that keeps all changes in memory.

So a directory passes if a server would open it, and the check changes nothing. It also checks permissions, free space,
foreign files, and the publication logs of the Spark engine.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

from lavant.broker.machine.replay import replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.storage.disks import FileDisk, OverlayDisk
from lavant.broker.storage.disks.locks import LOCK
from lavant.broker.storage.journal import Journal, JournalConfig
from lavant.broker.storage.journal.manifest import MANIFEST, is_segment, is_snapshot
from lavant.core.errors import InvalidValue, LavantError, NewerFormat, StorageLocked
from lavant.core.identities import derived_identity
from lavant.service.engines.factory import DIRECTORY as SPARK
from lavant.service.observability.metrics import figures_of, queue_names
from lavant.service.storage import namespace_logs
from lavant.service.storage.directory_errors import checked_directory
from lavant.service.storage.stores import identity_bytes


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a broker in figures."""

    queues: int
    messages: int
    in_flight: int
    """Of the messages."""
    subscriptions: int
    advertisements: int
    jobs: int
    """Running."""
    owed: int
    """Publications that the Spark engine has not delivered yet (lag)."""
    time_ms: int
    """Of the last record."""

    @classmethod
    def of(cls, broker: BrokerState) -> Contents:
        queues = broker.queues
        figures = [figures_of(queues, name) for name in queue_names(queues)]
        _, _, advertisements = broker.subscriptions.contents()
        return cls(
            queues=len(figures),
            messages=sum(each.visible + each.in_flight + each.delayed for each in figures),
            in_flight=sum(each.in_flight for each in figures),
            subscriptions=len(broker.subscriptions),
            advertisements=len(list(advertisements)),
            jobs=queues.running,
            owed=broker.subscriptions.log_offsets.lag,
            time_ms=queues.now_ms,
        )


class Level(StrEnum):
    DAMAGE = "damage"
    """Data is lost or wrong: a server does not open it."""
    OBSTACLE = "obstacle"
    """It is intact, but a server cannot open it here: permissions, space, or it is of a newer version."""
    NOTE = "note"
    """Worth knowing; a server opens it."""


class StorageFinding(msgspec.Struct, frozen=True):
    code: str
    """Machine-readable."""
    level: Level
    said: str
    remedy: str


OnRead = Callable[[int], None]
"""Called with the number of bytes read."""
OWN_FILES = frozenset({MANIFEST, LOCK, "clock", SPARK})
TOO_NEW = "too-new"
_RESTORE = "restore the directory from a copy, or make one of what can be read: lavant check {0} --repair NEW"


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check."""

    directory: str
    opens: bool
    """Whether a server, here and as this user, would open it."""
    findings: list[StorageFinding]
    contents: Contents | None
    """If it opens."""
    size_bytes: int


class WatchedDisk(FileDisk):
    """Reads files and reports progress."""

    def __init__(self, directory: Path, on_read: OnRead) -> None:
        super().__init__(directory, lock=False)
        self._on_read = on_read

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        data = super().read(name, position, length)
        self._on_read(len(data))
        return data


def check(directory: Path, on_read: OnRead = lambda size: None) -> CheckReport:
    """Check everything. Raises `StorageLocked` while a server uses it, `InvalidValue` if it is no data directory."""
    checked_directory(directory)
    with held(directory):
        disk = WatchedDisk(directory, on_read)
        names = disk.names()
        if not any(name == MANIFEST or is_segment(name) or is_snapshot(name) for name in names):
            raise InvalidValue(
                f"{directory} is not a data directory: it has neither a manifest nor a segment; give the "
                "directory that `lavant serve --data` was given"
            )
        findings = [*_rights(directory, names), *_foreign(directory, names)]
        contents = None
        if not any(finding.code == "unreadable" for finding in findings):
            opened, found = _opened(disk, directory)
            findings += found
            if opened is not None:
                journal, broker = opened
                contents = Contents.of(broker)
                findings += _logs(directory, broker, identity_bytes(journal))
        findings += _room(directory, names)
        return CheckReport(
            directory=str(directory),
            opens=contents is not None and all(finding.level is Level.NOTE for finding in findings),
            findings=findings,
            contents=contents,
            size_bytes=size_of(directory),
        )


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keeps servers from starting. Writes nothing: a directory without a lock file is not in use."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise StorageLocked(
                f"{directory} is in use, by process {holder or 'unknown'}; stop that one, or check a copy"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _opened(disk: FileDisk, directory: Path) -> tuple[tuple[Journal, BrokerState] | None, list[StorageFinding]]:
    """Open it as a server does."""
    config = JournalConfig(directory=str(directory))
    code = "manifest"
    try:
        journal, recovered = Journal.open(OverlayDisk(disk), config)
        code = "journal" if recovered.chunks is None else "snapshot"

        def records() -> Iterator[bytes]:
            nonlocal code
            code = "journal"
            yield from recovered.records

        broker = replay(recovered.chunks, records(), after=recovered.position)
    except Exception as error:  # damaged bytes may raise anything
        return None, [_problem(code, error, directory)]
    return (journal, broker), [
        StorageFinding("torn-end", Level.NOTE, torn.described(config), "nothing: the next start truncates it")
        for torn in journal.torn
    ]


def _problem(code: str, error: Exception, directory: Path) -> StorageFinding:
    if isinstance(error, NewerFormat):
        return _too_new(str(error))
    said = str(error) if isinstance(error, LavantError) else f"{type(error).__name__}: {error}"
    return StorageFinding(code, Level.DAMAGE, said, _RESTORE.format(directory))


def _too_new(said: str) -> StorageFinding:
    return StorageFinding(TOO_NEW, Level.OBSTACLE, said, "start the version of Lavant that wrote it")


def _rights(directory: Path, names: list[str]) -> Iterator[StorageFinding]:
    files = [name for name in names if name in OWN_FILES or is_segment(name) or is_snapshot(name)]
    for name in files:
        path = directory / name
        if not os.access(path, os.R_OK):
            yield StorageFinding(
                "unreadable",
                Level.OBSTACLE,
                f"{path} is not readable",
                f"check it as the server's user, or: chmod u+r {path}",
            )
        elif not os.access(path, os.W_OK):
            yield StorageFinding(
                "read-only", Level.OBSTACLE, f"{path} is not writable", f"chmod u+w {path}, or mount it writable"
            )
    if not os.access(directory, os.W_OK | os.X_OK):
        yield StorageFinding(
            "read-only",
            Level.OBSTACLE,
            f"{directory} is not writable",
            f"chmod u+wx {directory}, or mount it writable",
        )


def _foreign(directory: Path, names: list[str]) -> Iterator[StorageFinding]:
    for name in names:
        if name not in OWN_FILES and not is_segment(name) and not is_snapshot(name):
            yield StorageFinding(
                "foreign", Level.NOTE, f"{directory / name} is not a file of a server", "nothing: it is ignored"
            )


def _room(directory: Path, names: list[str]) -> Iterator[StorageFinding]:
    free = os.statvfs(directory)
    free_bytes = free.f_bavail * free.f_frsize
    wanted = JournalConfig().segment_bytes
    if free_bytes < wanted:
        said = (
            f"the disk of {directory} has {free_bytes:,} bytes free, and a server needs {wanted:,} for its next segment"
        )
        yield StorageFinding("full", Level.NOTE if any(map(is_segment, names)) else Level.OBSTACLE, said, "free space")


def _logs(directory: Path, broker: BrokerState, identity: bytes) -> Iterator[StorageFinding]:
    for name, offset in broker.subscriptions.log_offsets.all():
        place = directory / SPARK / name / "log"
        log = namespace_logs.scan(offset, place, derived_identity(identity, name))
        if log.is_newer:
            yield _too_new(log.problem)
        elif log.problem:
            said = f"{log.lost} accepted publications of the publication log {name!r} cannot be read: {log.problem}"
            yield StorageFinding("lane-log", Level.DAMAGE, said, _RESTORE.format(directory))
    if broker.subscriptions.log_offsets.lag:
        owed = f"{broker.subscriptions.log_offsets.lag} publications wait for the Spark engine"
        yield StorageFinding("owed", Level.NOTE, owed, "start with --engine spark until they are delivered")
