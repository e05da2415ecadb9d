"""Housekeeping of the journal: keeps a spare segment ready, retries on a full disk, and starts compaction.

All of it runs in parallel with commits: in a thread, and compaction in a process of its own, so that the server never
waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from lavant.broker.storage.journal import Disk, Journal, SegmentUpkeep, apply_upkeep
from lavant.core.errors import CorruptJournal, LavantError, StorageFailed, StorageFull

FAILED = 1
STATUS_OF: dict[type[LavantError], int] = {StorageFull: 3, CorruptJournal: 4}
"""Exit codes of the compaction process for these errors; `FAILED` for all others."""
_ERROR_OF = {status: error for error, status in STATUS_OF.items()}
_PROGRAM = "lavant.service.storage.compaction"
_MESSAGE_CHARACTERS_MAX = 2000
RETRY_S = 1.0
"""Interval of retries on a full disk."""
COMPACTION_RETRY_S = 30.0
"""Delay after a failed compaction."""

Compact: TypeAlias = Callable[[int], Awaitable[int]]
"""Writes a snapshot up to a position and returns its size in bytes."""

_logger = logging.getLogger(__name__)


class Housekeeper:
    """Maintains one journal's files, in the running loop. `on_room` is called when there is a new spare segment."""

    def __init__(
        self,
        journal: Journal,
        disk: Disk,
        compact: Compact | None,
        *,
        on_room: Callable[[], None],
        on_failed: Callable[[StorageFailed], None],
        retry_s: float = RETRY_S,
        compaction_retry_s: float = COMPACTION_RETRY_S,
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._compact = compact
        self._on_room = on_room
        self._on_failed = on_failed
        self._retry_s = retry_s
        self._compaction_retry_s = compaction_retry_s
        self._loop = asyncio.get_running_loop()
        self._upkeep: asyncio.Task[None] | None = None
        self._compaction: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._may_compact = compact is not None
        self._is_closed = False

    def check(self) -> None:
        """Start whatever is due; call it whenever a segment was begun."""
        if self._is_closed:
            return
        upkeep = self._journal.upkeep()
        if upkeep is not None:
            self._upkeep = self._start(self._perform(upkeep))
        if self._may_compact and self._journal.wants_compaction:
            self._may_compact = False
            self._compaction = self._start(self._compact_journal())

    async def close(self) -> None:
        """Cancel a running compaction; finish the rest."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        if self._compaction is not None:
            self._compaction.cancel()
        running = [task for task in (self._upkeep, self._compaction) if task is not None]
        await asyncio.gather(*running, return_exceptions=True)

    async def _perform(self, upkeep: SegmentUpkeep) -> None:
        was_full = self._journal.is_full
        try:
            await self._loop.run_in_executor(None, apply_upkeep, self._disk, upkeep)
        except StorageFull as error:
            self._journal.refuse_upkeep(upkeep)
            if not was_full and self._journal.is_full:
                _logger.warning("nothing new is accepted until there is disk space: %s", error)
            self._later(self._retry_s, self._retry)
        except OSError as error:
            self._on_failed(StorageFailed(f"the journal's files could not be changed: {error}; check the disk"))
            return
        else:
            self._journal.finish_upkeep(upkeep)
            if was_full and not self._journal.is_full:
                _logger.warning("there is disk space again")
            self._on_room()
        self.check()

    async def _compact_journal(self) -> None:
        assert self._compact is not None
        upto = self._journal.durable
        try:
            size_bytes = await self._compact(upto)
        except (LavantError, OSError) as error:
            _logger.warning("compaction failed and is tried again in %g s: %s", self._compaction_retry_s, error)
            self._later(self._compaction_retry_s, self._allow_compaction)
            return
        self._may_compact = True
        self._journal.adopt(upto, size_bytes)
        self.check()

    def _retry(self) -> None:
        self._journal.retry()
        self.check()

    def _allow_compaction(self) -> None:
        self._may_compact = True
        self.check()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(delay_s, act)
        self._timers.add(timer)


async def compact_directory(directory: Path, upto: int) -> int:
    """Compact the journal of a directory up to a record, and return the size of the new snapshot in bytes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _PROGRAM, str(directory), str(upto), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        # Not `communicate`, which would close the input: the process would take that for the end of the server.
        output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
        status = await process.wait()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    finally:
        process.stdin.close()
    if status:
        message = errors.decode(errors="replace").strip()[-_MESSAGE_CHARACTERS_MAX:]
        raise _ERROR_OF.get(status, LavantError)(message or f"compaction ended with status {status}")
    return int(output)
