"""Parts: the Parquet files of notifications that exit tasks write."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from lavant.broker.matching import Matches
from lavant.broker.storage.objects import open_storage
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.parquet import encode

SCHEMA = pa.schema(
    [("key", pa.int64()), ("id", pa.string()), ("subscriptions", pa.list_(pa.uint32())), ("rejected", pa.string())]
)
"""Of the notifications; `key` is the publication's offset in the log."""

PARTS = "part-"
"""Begins their names."""


class Part(msgspec.Struct, frozen=True):
    """A file of notifications. One without rows does not exist."""

    name: str
    rows: int = 0
    matches: int = 0
    rejected: int = 0
    """Rows of refused publications."""
    bytes: int = 0


def part_name(number: int, run: str, task: int) -> str:
    """Of a batch, by a run of the stream and one of its tasks.

    >>> part_name(7, "1f0c9a2e", 1)
    'part-0000000007-1f0c9a2e-0001.parquet'
    """
    return f"{PARTS}{number:010d}-{run}-{task:04d}.parquet"


def write_part(
    output: str | None, name: str, blocks: Sequence[MatchedBlock], matches: Matches
) -> tuple[Part, bytes | None]:
    """Write the rows of an exit task durably, or return them if there is no `output` that tasks reach."""
    rows, lists = notifications(blocks, matches)
    if not rows.num_rows:
        return Part(name), None
    content = encode(rows, lists)
    rejected = rows.num_rows - rows.column("rejected").null_count
    part = Part(name, rows.num_rows, len(matches.ids), rejected, sum(len(each) for each in content))
    if output is None:
        return part, b"".join(content)
    open_storage(output).write(name, content)
    return part, None


def notifications(blocks: Sequence[MatchedBlock], matches: Matches) -> tuple[pa.RecordBatch, Matches]:
    """A row for each publication that matches something or is refused, by offset, and the lists of their ids."""
    refused = {each.row: each for block in blocks for each in block.refused}
    names = next((block.names for block in blocks if block.names is not None), None)
    has_row = np.diff(matches.offsets) > 0
    has_row[list(refused)] = True
    rows = np.flatnonzero(has_row)
    chosen = pa.array(rows)
    ids = pa.nulls(len(rows), pa.string()) if names is None else names.take(chosen)
    reasons = pa.nulls(len(rows), pa.string())
    if refused:
        known = [refused.get(row) for row in rows.tolist()]
        ids = pa.array(
            [old if new is None else new.id for old, new in zip(ids.to_pylist(), known, strict=True)], pa.string()
        )
        reasons = pa.array([None if each is None else each.reason for each in known], pa.string())
    offsets = np.append(matches.offsets[:-1][rows], matches.offsets[-1])
    keys = pa.array(rows + blocks[0].start)
    return pa.RecordBatch.from_arrays([keys, ids, reasons], ["key", "id", "rejected"]), Matches(offsets, matches.ids)
