"""Record stores: durable in a journal, or in memory only.

recovered ──► replay ──► start() ──► stage() … on_committed() … ──► close()
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
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
from lavant.service.storage.group_commit import GroupCommit
from lavant.service.storage.housekeeping import Compact, Housekeeper, compact_directory

OnCommitted: TypeAlias = Callable[[int], None]
OnFailed: TypeAlias = Callable[[StorageFailed], None]
_logger = logging.getLogger(__name__)


SLOW_S, SLOW_AGAIN_S = 1.0, 60.0
"""A commit that takes longer is logged, at most once in so many seconds."""
COMMIT_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class RecordStore(Protocol):
    recovered: RecoveredJournal
    """The stored records; read them to the end before `start`."""
    commit_times: Histogram
    """Times to write and sync a block."""

    @property
    def identity(self) -> bytes:
        """Unique to this store, and constant as long as its data."""
        ...

    @property
    def position(self) -> int:
        """The position of the last record, recovered or staged."""
        ...

    @property
    def is_full(self) -> bool:
        """The disk is full: stage only records that free space."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """No space is left even for those: stage nothing."""
        ...

    def start(self, *, on_committed: OnCommitted, on_failed: OnFailed) -> None:
        """Records can be staged from now on. Both callbacks run in the loop, `on_failed` at most once."""
        ...

    @property
    def staged_bytes(self) -> int:
        """Bytes of records whose write has not begun."""
        ...

    def stage(self, record: bytes, *, hurry: bool = True) -> int:
        """Add a record and return its position: 1, 2, 3, … over the store's whole life.

        Without `hurry` the commit may be delayed by some milliseconds, unless `hurry()` is called.
        """
        ...

    def hurry(self, *, at_once: bool = False) -> None:
        """Commit staged records now. With `at_once`, `on_committed` may be called before this returns."""
        ...

    async def close(self) -> None:
        """Commit staged records and release all resources."""
        ...


def identity_bytes(journal: Journal) -> bytes:
    return journal.identity.to_bytes(8, "big")


class JournalStore:
    """A journal on a disk. `compact` compacts it while it runs; without it, the journal only grows."""

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
        self._slow_logged_s = -math.inf
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

        def check() -> None:
            housekeeper.check()

        commit = GroupCommit(
            self.journal,
            self._disk,
            on_committed=on_committed,
            on_failed=fail,
            on_rolled=check,
            on_timed=self._timed,
        )
        housekeeper = Housekeeper(self.journal, self._disk, self._compact, on_room=commit.go_on, on_failed=fail)
        self._commit, self._housekeeper = commit, housekeeper
        for torn in self.journal.torn:
            _logger.warning("%s; it is truncated", torn.described(self._config))
        housekeeper.check()

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
            if not self._has_failed:  # otherwise the state of the files is unknown
                await asyncio.get_running_loop().run_in_executor(None, self._mark_end)
        self._on_closed()

    def _timed(self, duration_s: float) -> None:
        self.commit_times.add(duration_s)
        if duration_s > SLOW_S and time.monotonic() - self._slow_logged_s > SLOW_AGAIN_S:
            self._slow_logged_s = time.monotonic()
            _logger.warning("the disk is slow: a commit to the journal took %.1f s, and clients waited", duration_s)

    def _mark_end(self) -> None:
        with suppress(StorageFull, OSError):  # without the mark, the next start scans for the end as after a crash
            apply_upkeep(self._disk, self.journal.closing())


class VolatileStore:
    """In memory only: staged records count as committed and are lost with the process."""

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
        """Everything is confirmed in the next turn of the loop anyway."""

    async def close(self) -> None:
        if self._is_due:
            await asyncio.sleep(0)

    def _confirm(self) -> None:
        self._is_due = False
        self._on_committed(self.position)


def open_store(directory: Path | None, config: JournalConfig = DEFAULT) -> RecordStore:
    """Open and lock the store of a directory; without a directory, a volatile one.

    Raises `StorageLocked`, `CorruptJournal`, and `StorageFull` if there is no space even for an empty journal.
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
