"""Passes match results from hosts to the exit as files: Spark carries their names, not the ids.

A publication may match thousands of subscriptions. Sent through Spark, each id would be copied half a dozen times
between Python, Java and shuffle files; in a file that the exit maps, it is written once and read once. The files are
where all hosts reach them, like the log and the slices, and are deleted when their batch is in the sink.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.core.errors import LimitExceeded
from lavant.core.kernels.kernels import frozen, kernel

REASONS_MAX = 3


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reasons with their counts, the most frequent first; ties in the order of arrival."""
    return dict(Counter(reasons).most_common())


def reasons_text(reasons: Mapping[str, int]) -> str:
    """
    >>> reasons_text({"not JSON": 2, "no number": 1})
    '2 for: not JSON; 1 for: no number'
    """
    shown = [f"{count} for: {reason}" for reason, count in list(reasons.items())[:REASONS_MAX]]
    others = sum(list(reasons.values())[REASONS_MAX:])
    return "; ".join([*shown, f"{others} for other reasons"] if others else shown)


MATCHES_MAX = 2**31 - 1
"""Of one record batch: the most that Arrow's lists can count."""

SCHEMA = pa.schema(
    [("key", pa.int64()), ("id", pa.string()), ("subscriptions", pa.list_(pa.uint32())), ("rejected", pa.string())]
)


class RefusedRecord(NamedTuple):
    """A publication that no matcher can take: its id, if it has one, and why."""

    id: str | None
    reason: str


class Lists(NamedTuple):
    """Publications by key, ascending, each with its subscriptions."""

    keys: NDArray[np.int64]
    ids: pa.Array
    matches: Matches
    rejected: dict[int, RefusedRecord]
    """By key."""

    def to_records(self) -> pa.RecordBatch:
        """Rows for matches, then for refused publications."""
        refused = sorted(self.rejected)
        ends = np.append(self.matches.offsets, np.full(len(refused), self.matches.offsets[-1]))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.append(self.keys, np.array(refused, np.int64))),
                pa.concat_arrays([self.ids, pa.array([self.rejected[key].id for key in refused], pa.string())]),
                _lists(ends, self.matches.ids),
                pa.concat_arrays(
                    [
                        pa.nulls(len(self.keys), pa.string()),
                        pa.array([self.rejected[key].reason for key in refused], pa.string()),
                    ]
                ),
            ],
            schema=SCHEMA,
        )


def write_file(directory: Path, found: Iterable[Lists]) -> str:
    """Write one host's results of a batch to a file, and return its name."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{uuid.uuid4().hex}.arrow"
    with pa.OSFile(str(directory / name), "wb") as file, pa.ipc.new_file(file, SCHEMA) as stream:
        for lists in found:
            stream.write_batch(lists.to_records())
    return name


def merge_files(paths: Sequence[Path]) -> pa.RecordBatch:
    """Exit (EP): merge the lists of all hosts for each publication."""
    parts: list[pa.RecordBatch] = []
    for path in paths:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        parts += [reader.get_batch(number) for number in range(reader.num_record_batches)]
    keys = [part.column("key").to_numpy() for part in parts]
    merged, first = np.unique(np.concatenate([np.empty(0, np.int64), *keys]), return_index=True)
    places = [np.searchsorted(merged, each) for each in keys]
    lists = [_matches_of(part.column("subscriptions")) for part in parts]
    counts = np.zeros(len(merged), np.int64)
    for place, matches in zip(places, lists, strict=True):
        np.add.at(counts, place, np.diff(matches.offsets))
    offsets = np.append(0, np.cumsum(counts))
    _check_count(int(offsets[-1]))
    ids = np.empty(offsets[-1], np.uint32)
    cursor = offsets[:-1].copy()
    for place, matches in zip(places, lists, strict=True):
        _copy_lists(place, frozen(matches.offsets), frozen(matches.ids), cursor, ids)
    rows = pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=SCHEMA)
    chosen = pa.array(first)
    return pa.RecordBatch.from_arrays(
        [pa.array(merged), rows.column("id").take(chosen), _lists(offsets, ids), rows.column("rejected").take(chosen)],
        schema=SCHEMA,
    )


def _lists(offsets: NDArray[np.int64], ids: NDArray[np.uint32]) -> pa.ListArray:
    _check_count(int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids))


def _check_count(matches: int) -> None:
    if matches > MATCHES_MAX:
        raise LimitExceeded(f"a batch has {matches} matches, at most {MATCHES_MAX} fit; lower rowsMax")


def _matches_of(lists: pa.ListArray) -> Matches:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return Matches(offsets, lists.values.to_numpy())


@kernel
def _copy_lists(
    place: NDArray[np.int64],
    offsets: NDArray[np.int64],
    ids: NDArray[np.uint32],
    cursor: NDArray[np.int64],
    out: NDArray[np.uint32],
) -> None:
    """Copy list i to the cursor of its publication, number `place[i]`."""
    for i in range(len(place)):
        start, target_start = np.uint64(offsets[i]), np.uint64(cursor[place[i]])
        length = np.uint64(offsets[i + 1]) - start
        source, target = ids[start : start + length], out[target_start : target_start + length]
        for k in range(length):
            target[k] = source[k]
        cursor[place[i]] += np.int64(length)
