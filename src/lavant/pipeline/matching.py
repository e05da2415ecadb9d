"""Matching of DataFrames: each task matches its own rows against all slices.

A row and its result never leave their task, so nothing has to be joined again and no two rows can be confused,
whatever their ids are.

>>> matched = match(publications, "subscriptions", id="event_id")     # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from lavant.broker.matching import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.matching.plain.table import Dimension
from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import StoreVersion
from lavant.core.errors import InvalidValue
from lavant.core.files import local_path
from lavant.core.publications.attributes import check_name
from lavant.core.publications.columns import ENVELOPE
from lavant.pipeline.cluster.probes import Probe
from lavant.pipeline.operators.access import PUBLICATIONS_AT_ONCE
from lavant.pipeline.operators.open_slices import SlicePlace, open_slice
from lavant.pipeline.operators.parts import SCHEMA
from lavant.pipeline.stream.records import POINT, AcceptedRecords, accept, compared_columns

ATTRIBUTE_TYPES = (StringType, BooleanType, IntegralType, FloatType, DoubleType)
IDS_OF_A_PIECE_MAX = 1_000_000
"""Of the rows that leave a task together; Spark keeps a whole batch in memory."""
ROW_BITS = 33
"""Of a key, as in Spark's `monotonically_increasing_id`; the partition's number is above them."""


def match(publications: DataFrame, subscriptions: str | Path, *, id: str | None = None) -> DataFrame:
    """For each row of `publications` that matches anything: `key`, `id` and the `subscriptions` it matches.

    `publications` has a column for each attribute, or `@point` for encrypted ones; batch or streaming. Column `id`
    identifies its rows: it is returned unchanged, of any type, even where it is null or not unique. `key` numbers the
    rows of this run. `subscriptions` is a slice store that all hosts reach. Rows that cannot be publications come out
    with the reason in `rejected`.

    A streaming DataFrame follows changes of the store, each task when it starts; for batches that see one version
    everywhere, read the publications from a log (`lavant.pipeline.stream.driver`).
    """
    if id is not None and publications.columns.count(id) != 1:
        problem = "there is no column" if id not in publications.columns else "there are several columns"
        raise InvalidValue(f"{problem} {id!r} for the ids; the columns are {', '.join(publications.columns)}")
    attributes = [field.name for field in publications.schema.fields if _is_attribute(field, id)]
    store = SliceReader(local_path(subscriptions).absolute())
    version = None if publications.isStreaming else store.version().number
    id_type = publications.schema[id].dataType if id is not None else StringType()
    run = _match_rows(str(store.directory), store.identity, version, attributes, id)
    return publications.mapInArrow(run, _result(id_type))


def _result(id: DataType) -> StructType:
    return StructType(
        [
            StructField("key", LongType()),
            StructField("id", id),
            StructField("subscriptions", ArrayType(LongType())),
            StructField("rejected", StringType()),
        ]
    )


def _is_attribute(field: StructField, id: str | None) -> bool:
    """Whether the id column can be an attribute; raises for any other column that cannot, as every row would be
    refused.
    """
    if field.name == POINT and isinstance(field.dataType, ArrayType):
        return True
    problem = None
    if not isinstance(field.dataType, ATTRIBUTE_TYPES):
        problem = (
            f"column {field.name!r} is of type {field.dataType.simpleString()}; "
            "cast it to string, a number or boolean, or leave it out"
        )
    elif field.name not in ENVELOPE:
        try:
            check_name(field.name)
        except InvalidValue as error:
            problem = f"{error}; rename the column, or leave it out"
    if problem is not None and field.name != id:
        raise InvalidValue(problem)
    return problem is None


def _match_rows(
    store: str, identity: str, version: int | None, attributes: list[str], id: str | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task on its rows."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = SliceReader(Path(store), identity)
        pinned = reader.version(version)
        context = TaskContext.get()
        first = 0 if context is None else context.partitionId() << ROW_BITS
        compared = _dimensions(reader, pinned) if reader.settings.scheme == "plain" else None
        probes = [Probe(host=0, slice=number) for number in range(reader.settings.slices)]
        for batch in batches:
            for start in range(0, batch.num_rows, PUBLICATIONS_AT_ONCE):
                rows = batch.slice(start, PUBLICATIONS_AT_ONCE)
                keys = first + np.arange(rows.num_rows)
                first += rows.num_rows
                records = _columns(rows, attributes)
                if compared is not None:
                    records = compared_columns(records, compared)
                found = match_records(reader, pinned, records, keys, probes, report_rejected=True)
                yield from _batches(_records(found, keys, None if id is None else rows.column(id)))

    return run


def _dimensions(store: SliceReader, version: StoreVersion) -> frozenset[Dimension]:
    """Everything that any filter compares."""
    slices = (_open(store, number, version) for number in range(store.settings.slices))
    return frozenset(dimension for matcher in slices for dimension in matcher.dimensions)


def _columns(rows: pa.RecordBatch, attributes: list[str]) -> pa.RecordBatch:
    wanted = [place for place, name in enumerate(rows.schema.names) if name in attributes]
    return rows.select(wanted)


def _records(found: Lists, keys: NDArray[np.int64], ids: pa.Array | None) -> pa.RecordBatch:
    """The results, with the original ids, and subscriptions of a type that Spark supports."""
    listed = found.to_records()
    chosen = pa.array(listed.column("key").to_numpy() - (keys[0] if len(keys) else 0))
    if ids is not None:
        listed = listed.set_column(1, "id", ids.take(chosen))
    lists = listed.column("subscriptions")
    signed = pa.ListArray.from_arrays(lists.offsets, lists.values.cast(pa.int64()))
    return listed.set_column(2, "subscriptions", signed)


def _batches(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches with not too many ids each."""
    ends = records.column("subscriptions").offsets.to_numpy()
    first = 0
    while first < records.num_rows:
        last = int(np.searchsorted(ends, ends[first] + IDS_OF_A_PIECE_MAX, "right")) - 1
        last = min(max(last, first + 1), records.num_rows)
        yield records.slice(first, last - first)
        first = last


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
                pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(self.matches.ids)),
                pa.concat_arrays(
                    [
                        pa.nulls(len(self.keys), pa.string()),
                        pa.array([self.rejected[key].reason for key in refused], pa.string()),
                    ]
                ),
            ],
            schema=SCHEMA,
        )


def match_records(
    store: SliceReader,
    version: StoreVersion,
    records: pa.RecordBatch,
    keys: NDArray[np.int64],
    probes: list[Probe],
    *,
    report_rejected: bool,
) -> Lists:
    """Match records against the slices that the probes name, and record the cost there."""
    accepted = accept(store.settings.scheme, records)
    refused = dict(accepted.rejected)
    try:
        matches = _match_slices(store, version, accepted, probes)
    except InvalidValue as error:  # well-formed, but not for these subscriptions: encrypted under another schema, say
        refused |= dict.fromkeys(accepted.rows.tolist(), str(error))
        matches = _nothing(len(accepted.rows))
    ids = _ids_of(records)
    rejected = {
        int(keys[row]): RefusedRecord(ids[row].as_py(), reason) for row, reason in refused.items() if report_rejected
    }
    some = np.flatnonzero(np.diff(matches.offsets))
    chosen = accepted.rows[some]
    ends = np.append(matches.offsets[some], matches.offsets[-1])
    return Lists(keys[chosen], ids.take(pa.array(chosen)), Matches(ends, matches.ids), rejected)


def _match_slices(store: SliceReader, version: StoreVersion, accepted: AcceptedRecords, probes: list[Probe]) -> Matches:
    parts: list[Matches] = []
    for probe in probes if len(accepted.rows) else ():
        matcher = _open(store, probe.slice, version)
        started = time.thread_time()
        parts.append(matcher.match(accepted.batch))
        cpu_s = time.thread_time() - started
        memory = probe.memory_bytes if probe.memory_bytes else matcher.statistics().memory_bytes
        probe.add(cpu_s=cpu_s, publications=len(accepted.rows), matches=len(parts[-1].ids), memory_bytes=memory)
    return merge(parts) if parts else _nothing(len(accepted.rows))


def _nothing(publications: int) -> Matches:
    return Matches(np.zeros(publications + 1, np.int64), np.empty(0, np.uint32))


def _ids_of(records: pa.RecordBatch) -> pa.Array:
    if "@id" in records.schema.names:
        return records.column("@id")
    return pa.nulls(records.num_rows, pa.string())


def _open(store: SliceReader, number: int, version: StoreVersion) -> Any:
    return open_slice(SlicePlace(store.address, store.identity, store.settings.scheme), number, version).matcher
