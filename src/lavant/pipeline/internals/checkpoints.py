"""Which stretch of the log a micro-batch is: Spark writes it into its checkpoint before the batch begins."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from lavant.core.errors import UNDECODABLE, CorruptSnapshot
from lavant.core.identities import UNKNOWN


class BatchOffsets(NamedTuple):
    """Offsets of the log, the second behind the last publication."""

    start: int
    end: int
    log: str = UNKNOWN
    """Identity of the log."""


class SourceOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a stream has come, as Spark keeps it; in older checkpoints without the log's identity."""

    offset: int
    log: str = UNKNOWN


def stretch_of(checkpoint: Path, batch: int, first: int = 0) -> BatchOffsets:
    """Of a batch of a stream that began at offset `first`."""
    start = _end_of(checkpoint, batch - 1).offset if batch else first
    end = _end_of(checkpoint, batch)
    return BatchOffsets(start, end.offset, end.log)


def last_planned(checkpoint: Path) -> SourceOffset | None:
    """Where the last batch ends that was begun; None before the first."""
    return _last(checkpoint, "offsets")


def last_committed(checkpoint: Path) -> int | None:
    """The offset behind the last batch that Spark has committed; None before the first."""
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
            f"{path} does not say where batch {batch} ends ({error}); restore the checkpoint from a copy, "
            "or start anew with another output directory"
        ) from None
