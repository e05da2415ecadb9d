"""Stores: where a server's records go, and where they come from when it starts.

recovered ──► the queues are made anew ──► start() ──► stage() … on_committed() … ──► close()
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import Disk, Journal, JournalConfig, RecoveredJournal, apply_upkeep
from lavant.broker.storage.journal.config import DEFAULT
from lavant.core.errors import StorageFailed, StorageFull
from lavant.service.observability.openmetrics import Histogram
from lavant.service.storage.compactor import compact_directory
from lavant.service.storage.group_commit import GroupCommit
from lavant.service.storage.housekeeping import Compact, Housekeeper

OnCommitted: TypeAlias = Callable[[int], None]
OnFailed: TypeAlias = Callable[[StorageFailed], None]
_logger = logging.getLogger(__name__)


COMMIT_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class RecordStore(Protocol):
    recovered: RecoveredJournal
    """What the store holds; to be read to its end before `start`."""
    commit_times: Histogram
    """How long it took to write and sync a block."""

    @property
    def identity(self) -> bytes:
        """No other store has the same; it lasts as long as what is stored."""
        ...

    @property
    def position(self) -> int:
        """Of the last record: recovered, or staged since."""
        ...

    @property
    def is_full(self) -> bool:
        """Nothing new should be staged, only what helps to make room."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Nothing at all should be staged: there is no room for it."""
        ...

    def start(self, *, on_committed: OnCommitted, on_failed: OnFailed) -> None:
        """From now on records can be staged. Both are called in the running loop, `on_failed` at most once."""
        ...

    @property
    def staged_bytes(self) -> int:
        """Of the records that are not on their way to the disk yet."""
        ...

    def stage(self, record: bytes, *, hurry: bool = True) -> int:
        """Take a record, and return its position: 1, 2, 3, … over the store's whole life.

        Without hurry it may take some milliseconds until it is committed, unless `hurry` is called.
        """
        ...

    def hurry(self, *, at_once: bool = False) -> None:
        """Somebody waits for what was staged. At once means that `on_committed` may be called before this returns."""
        ...

    async def close(self) -> None:
        """Commit what is staged, and give everything back."""
        ...


def identity_bytes(journal: Journal) -> bytes:
    return journal.identity.to_bytes(8, "big")


class JournalStore:
    """A journal on a disk. `compact` folds it while it runs; without, it only grows."""

    def __init__(
        self,
        disk: Disk,
        config: JournalConfig = DEFAULT,
        *,
        compact: Compact | None = None,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        self.journal, self.recovered = Journal.open(disk, config, new_id=secrets.randbits(64))
        self.commit_times = Histogram(COMMIT_BOUNDS_S)
        self._config = config
        self._disk = disk
        self._compact = compact
        self._on_closed = on_closed
        self._has_failed = False
        self._commit: GroupCommit | None = None
        self._housekeeper: Housekeeper | None = None

    @property
    def identity(self) -> bytes:
        return identity_bytes(self.journal)

    @property
    def position(self) -> int:
        return self.journal.position

    @property
    def is_full(self) -> bool:
        return self.journal.is_full

    @property
    def is_exhausted(self) -> bool:
        return self.journal.is_exhausted

    def start(self, *, on_committed: OnCommitted, on_failed: OnFailed) -> None:
        def fail(error: StorageFailed) -> None:
            if not self._has_failed:
                self._has_failed = True
                commit.give_up()
                on_failed(error)

        def look() -> None:
            housekeeper.look()

        commit = GroupCommit(
            self.journal,
            self._disk,
            on_committed=on_committed,
            on_failed=fail,
            on_rolled=look,
            on_timed=self.commit_times.add,
        )
        housekeeper = Housekeeper(self.journal, self._disk, self._compact, on_room=commit.go_on, on_failed=fail)
        self._commit, self._housekeeper = commit, housekeeper
        for torn in self.journal.torn:
            _logger.warning("%s; it is cut off", torn.described(self._config))
        housekeeper.look()

    @property
    def staged_bytes(self) -> int:
        return self.journal.staged_bytes

    def stage(self, record: bytes, *, hurry: bool = True) -> int:
        assert self._commit is not None, "start the store first"
        return self._commit.stage(record, hurry=hurry)

    def hurry(self, *, at_once: bool = False) -> None:
        assert self._commit is not None, "start the store first"
        if at_once:
            self._commit.commit()
        else:
            self._commit.go_on()

    async def close(self) -> None:
        if self._commit is not None and self._housekeeper is not None:
            await self._commit.close()
            await self._housekeeper.close()
            if not self._has_failed:  # else it is not known what the files are like
                await asyncio.get_running_loop().run_in_executor(None, self._mark_end)
        self._on_closed()

    def _mark_end(self) -> None:
        with suppress(StorageFull, OSError):  # without the mark, the end is found as it is after a crash
            apply_upkeep(self._disk, self.journal.closing())


class VolatileStore:
    """Keeps nothing: what is staged counts as committed, and is gone with the process."""

    def __init__(self) -> None:
        self.recovered = RecoveredJournal(0, None, iter(()))
        self.commit_times = Histogram(COMMIT_BOUNDS_S)
        self.identity = secrets.token_bytes(8)
        self.position = 0
        self.is_full = False
        self.is_exhausted = False
        self.staged_bytes = 0
        self._is_due = False
        self._on_committed: OnCommitted = lambda position: None

    def start(self, *, on_committed: OnCommitted, on_failed: OnFailed) -> None:
        self._on_committed = on_committed

    def stage(self, record: bytes, *, hurry: bool = True) -> int:
        self.position += 1
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._confirm)
        return self.position

    def hurry(self, *, at_once: bool = False) -> None:
        """All is confirmed in the next turn of the loop anyway."""

    async def close(self) -> None:
        if self._is_due:
            await asyncio.sleep(0)

    def _confirm(self) -> None:
        self._is_due = False
        self._on_committed(self.position)


def open_store(directory: Path | None, config: JournalConfig = DEFAULT) -> RecordStore:
    """The store of a directory, locked; without a directory, one that keeps nothing.

    Raises `StorageLocked`, `CorruptJournal`, and `StorageFull` if there is no room even for an empty one.
    """
    if directory is None:
        return VolatileStore()
    disk = FileDisk(directory)
    try:
        named = msgspec.structs.replace(config, directory=str(directory))
        return JournalStore(disk, named, compact=partial(compact_directory, directory), on_closed=disk.close)
    except BaseException:
        disk.close()
        raise
