"""Starts compaction, each time in a process of its own, so that the server never waits for it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from lavant.core.errors import CorruptJournal, LavantError, StorageFull

FAILED = 1
STATUS_OF: dict[type[LavantError], int] = {StorageFull: 3, CorruptJournal: 4}
"""Exit codes of the process for these errors; `FAILED` for all others."""
_ERROR_OF = {status: error for error, status in STATUS_OF.items()}
_PROGRAM = "lavant.service.storage.compaction"
_MESSAGE_CHARACTERS_MAX = 2000


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
