"""Small logs for tests: publications that say their own offset."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.publications.batch import PublicationBatch


def records(first: int, count: int) -> pa.RecordBatch:
    rows = [{"n": first + i, "text": f"publication {first + i}", "@id": str(first + i)} for i in range(count)]
    return PublicationBatch.from_dicts(rows).records


def append(directory: Any, *counts: int, **options: Any) -> int:
    """Append a block for each count, each publication saying its offset; the log's end then."""
    with LogWriter(directory, durable=False, **options) as log:
        for count in counts:
            assert log.append(records(log.end, count)) == log.end - count
        return log.end


def numbers(reader: LogReader, start: int, end: int) -> list[int]:
    """What the publications of a stretch say; fails where a slab's offset is not that of its first publication."""
    found: list[int] = []
    for slab in reader.read(start, end):
        said = slab.records.column("n").to_pylist()
        assert said[0] == slab.first_offset
        found += said
    return found


def everything(directory: Any) -> list[int]:
    reader = LogReader(directory)
    return numbers(reader, 0, reader.end())
