"""Which stretch of the log a micro-batch is: Spark writes it into its checkpoint before the batch begins."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from lavant.core.decoding import UNDECODABLE
from lavant.core.errors import CorruptSnapshot


class Stretch(NamedTuple):
    """Offsets of the log, the second behind the last publication."""

    start: int
    end: int


class _Offset(msgspec.Struct):
    offset: int


def stretch_of(checkpoint: Path, batch: int, first: int = 0) -> Stretch:
    """Of a batch of a stream that began at offset `first`."""
    start = _end_of(checkpoint, batch - 1) if batch else first
    return Stretch(start, _end_of(checkpoint, batch))


def last_committed(checkpoint: Path) -> int | None:
    """The offset behind the last batch that Spark has committed; None before the first."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdigit()]
    return _end_of(checkpoint, max(numbers)) if numbers else None


def _end_of(checkpoint: Path, batch: int) -> int:
    """A version, a line of metadata, and a line for each source: there is one."""
    path = checkpoint / "offsets" / str(batch)
    try:
        return msgspec.json.decode(path.read_text().splitlines()[2], type=_Offset).offset
    except (OSError, IndexError, *UNDECODABLE) as error:
        raise CorruptSnapshot(
            f"{path} does not say where batch {batch} ends ({error}); restore the checkpoint from a copy, "
            "or start anew with another output directory"
        ) from None
