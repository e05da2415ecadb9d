"""Offset ranges of micro-batches, read from Spark's checkpoint, which is written before a batch begins.

Private: the files `offsets/N` and `commits/N`, as `spark.sql.streaming.offsetLog.formatVersion=1` writes them.
`StreamingQueryProgress` has the same offsets publicly, but only after the batch.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from lavant.core.errors import UNDECODABLE, CorruptSnapshot
from lavant.core.identities import UNKNOWN


class BatchOffsets(NamedTuple):
    """Offsets of the log; `end` is exclusive."""

    start: int
    end: int
    log: str = UNKNOWN
    """Identity of the log."""


class SourceOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of a stream, as Spark stores it; in older checkpoints without the log's identity."""

    offset: int
    log: str = UNKNOWN


def batch_offsets(checkpoint: Path, batch: int, first: int = 0) -> BatchOffsets:
    """The offsets of a batch of a stream that began at offset `first`."""
    start = _end_of(checkpoint, batch - 1).offset if batch else first
    end = _end_of(checkpoint, batch)
    return BatchOffsets(start, end.offset, end.log)


def last_planned(checkpoint: Path) -> SourceOffset | None:
    """The end of the last batch that was begun; None before the first."""
    return _last(checkpoint, "offsets")


def last_committed(checkpoint: Path) -> int | None:
    """The end of the last batch that Spark has committed; None before the first."""
    last = _last(checkpoint, "commits")
    return None if last is None else last.offset


def _last(checkpoint: Path, kind: str) -> SourceOffset | None:
    numbers = [int(path.name) for path in (checkpoint / kind).glob("[0-9]*") if path.name.isdigit()]
    return _end_of(checkpoint, max(numbers)) if numbers else None


def _end_of(checkpoint: Path, batch: int) -> SourceOffset:
    """A version, a line of metadata, and a line for each source: there is one."""
    path = checkpoint / "offsets" / str(batch)
    try:
        return msgspec.json.decode(path.read_text().splitlines()[2], type=SourceOffset)
    except (OSError, IndexError, *UNDECODABLE) as error:
        raise CorruptSnapshot(
            f"{path} does not say where batch {batch} ends ({error}); restore the checkpoint from a copy, or "
            "start afresh with another output directory"
        ) from None
