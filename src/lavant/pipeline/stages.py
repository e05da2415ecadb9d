"""Match (M) and exit (EP) as functions over Arrow batches: what runs in Spark's Python workers.

Between the two, the subscriptions that a publication matches are the bytes of their ids: four each, and no list for
Spark to take apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.broker.matching.merging import merge
from lavant.broker.slices.store import Version
from lavant.pipeline.probes import Probe, write_probes
from lavant.pipeline.publications import accept
from lavant.pipeline.slice_cache import open_log, open_slice, scheme_of, store_version

PUBLICATIONS_AT_ONCE = 4096
"""Publications that are matched together: enough for the kernels, little enough for the memory."""

MATCHED = pa.schema([("key", pa.int64()), ("id", pa.string()), ("ids", pa.binary()), ("rejected", pa.string())])
MATCHED_SQL = "key bigint, id string, ids binary, rejected string"
NOTIFIED_SQL = "key bigint, id string, subscriptions array<bigint>, rejected string"

Batches = Iterator[pa.RecordBatch]


def match_log(batches: Iterable[pa.RecordBatch]) -> Batches:
    """M on references: each row names a stretch of the log, a version of the store, and the slices to match."""
    for references in batches:
        for reference in references.to_pylist():
            yield from _match_reference(**reference)


def _match_reference(
    log: str, store: str, version: int, host: int, slices: str, start: int, end: int, probes: str
) -> Batches:
    numbers = [int(number) for number in slices.split(",") if number]
    pinned = store_version(store, version)
    seen = [Probe(host=host, slice=number) for number in numbers]
    for slab in open_log(log).read(start, end):
        for first in range(0, slab.records.num_rows, PUBLICATIONS_AT_ONCE):
            part = slab.records.slice(first, PUBLICATIONS_AT_ONCE)
            keys = slab.first_offset + first + np.arange(part.num_rows)
            yield match_records(store, pinned, numbers, part, keys, seen, report_rejected=host == 0)
    if probes:
        write_probes(probes, start, seen)


def match_records(
    store: str,
    version: Version,
    numbers: list[int],
    records: pa.RecordBatch,
    keys: NDArray[np.int64],
    probes: list[Probe],
    *,
    report_rejected: bool,
) -> pa.RecordBatch:
    """Match records against some slices; one row for each publication that matches, and for each that is refused."""
    accepted = accept(scheme_of(store), records)
    parts: list[Matches] = []
    if len(accepted.rows):
        for number, probe in zip(numbers, probes, strict=True):
            matcher = open_slice(store, number, version)
            started = time.thread_time()
            parts.append(matcher.match(accepted.batch))
            probe.add(
                cpu_s=time.thread_time() - started,
                publications=len(accepted.rows),
                matches=len(parts[-1].ids),
                memory_bytes=matcher.statistics().memory_bytes if not probe.memory_bytes else probe.memory_bytes,
            )
    ids = _ids_of(records)
    found = _matched_rows(merge(parts), accepted.rows, keys, ids) if parts else _no_rows()
    if not (report_rejected and accepted.rejected):
        return found
    rows = np.array(sorted(accepted.rejected), np.int64)
    refused = pa.RecordBatch.from_arrays(
        [
            pa.array(keys[rows]),
            ids.take(pa.array(rows)),
            pa.nulls(len(rows), pa.binary()),
            pa.array([accepted.rejected[row] for row in rows.tolist()]),
        ],
        schema=MATCHED,
    )
    return pa.concat_batches([found, refused])


def _matched_rows(matches: Matches, rows: NDArray[np.int64], keys: NDArray[np.int64], ids: pa.Array) -> pa.RecordBatch:
    some = np.flatnonzero(np.diff(matches.offsets))
    ends = np.append(matches.offsets[some], matches.offsets[-1]) * 4
    data = pa.py_buffer(matches.ids)
    column = pa.Array.from_buffers(pa.large_binary(), len(some), [None, pa.py_buffer(ends.astype(np.int64)), data])
    chosen = rows[some]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys[chosen]),
            ids.take(pa.array(chosen)),
            column.cast(pa.binary()),
            pa.nulls(len(some), pa.string()),
        ],
        schema=MATCHED,
    )


def merge_hosts(batches: Iterable[pa.RecordBatch]) -> Batches:
    """EP for Spark, which has no unsigned integers."""
    merged = merge_lists(batches)
    if merged is not None:
        lists = merged.column("subscriptions")
        signed = pa.ListArray.from_arrays(lists.offsets, lists.values.cast(pa.int64()))
        yield merged.set_column(2, "subscriptions", signed)


def merge_lists(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch | None:
    """EP: the lists of all hosts for one publication become one list; refused publications pass through."""
    arrived = [batch for batch in batches if batch.num_rows]
    if not arrived:
        return None
    rows = pa.concat_batches(arrived)
    keys = rows.column("key").to_numpy()
    order = np.argsort(keys, kind="stable")
    rows = rows.take(pa.array(order))
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    # The lists of a publication lie side by side now, so one list from where its first begins holds them all.
    column = rows.column("ids")
    ends = np.frombuffer(column.buffers()[1], np.int32)[: len(column) + 1] // 4
    data = column.buffers()[2]
    ids = np.frombuffer(data, np.uint32) if data is not None else np.empty(0, np.uint32)
    lists = pa.ListArray.from_arrays(pa.array(np.append(ends[:-1][first], ends[-1])), pa.array(ids[: ends[-1]]))
    chosen = rows.take(pa.array(first))
    return pa.RecordBatch.from_arrays(
        [chosen.column("key"), chosen.column("id"), lists, chosen.column("rejected")],
        names=["key", "id", "subscriptions", "rejected"],
    )


def _ids_of(records: pa.RecordBatch) -> pa.Array:
    if "@id" in records.schema.names:
        return records.column("@id")
    return pa.nulls(records.num_rows, pa.string())


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=MATCHED)


def warm_up() -> None:
    """Load what a worker's first batch would have to load: compiled kernels, above all."""
    from lavant.broker.matching import EncryptedMatcher, PlainMatcher  # noqa: PLC0415
    from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters  # noqa: PLC0415
    from lavant.core.batches import PublicationBatch  # noqa: PLC0415

    batch = PublicationBatch.from_dicts([{"a": 1, "b": "x"}])
    plain = PlainMatcher()
    plain.add([1, 2], ["a between 0 and 2 and b = 'x'", "a > 0"])
    _merged([plain.match, plain.match], batch)
    encrypted = EncryptedMatcher()
    encrypted.add([1], EncryptedFilters(np.ones((1, 8, 5))))
    encrypted.match(EncryptedBatch(np.ones((4, 5))))


def _merged(matchers: list[Callable[[Any], Matches]], batch: Any) -> Matches:
    return merge([match(batch) for match in matchers])
