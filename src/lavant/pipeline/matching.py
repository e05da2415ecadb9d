"""Access, match and exit on DataFrames.

    publications ─► AP: to every host ─► M: each host its slices ─► EP: one list a publication

>>> matched = match(publications, "subscriptions", id="event_id")     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, FloatType, IntegralType, StringType

from lavant.broker.slices import SliceReader
from lavant.core.errors import InvalidValue
from lavant.pipeline.assignment import Assignment
from lavant.pipeline.probes import Probe
from lavant.pipeline.publications import POINT
from lavant.pipeline.slice_cache import store_version
from lavant.pipeline.stages import NOTIFIED_SQL, match_records, merge_hosts

HOST, KEY = "@host", "@key"
ATTRIBUTE_TYPES = (StringType, BooleanType, IntegralType, FloatType, DoubleType)
EXITS_A_HOST = 4
"""Exits of a table: each collects its share of the lists, so there are more of them than hosts."""
IDS_OF_A_PIECE_MAX = 1_000_000
"""Of the rows that leave a host together; Spark keeps a whole piece in memory."""


def match(
    publications: DataFrame, subscriptions: str | Path, *, id: str | None = None, hosts: int | None = None
) -> DataFrame:
    """For each publication that matches anything: `key`, `id` and the `subscriptions` it matches.

    `publications` has a column for each attribute, or `@point` for encrypted ones; batch or streaming. Column `id`
    names the publications; it must be unique, and without it a batch DataFrame is numbered. `subscriptions` is a slice
    store that all hosts reach. Rows that cannot be publications come out with the reason in `rejected`.

    A streaming DataFrame follows changes of the store, each host at the start of its task; for batches that see one
    version everywhere, read the publications from a log (`lavant.pipeline.stream`).
    """
    if id is None and publications.isStreaming:
        raise InvalidValue("a streaming DataFrame needs `id`, the column that names its publications")
    if id is not None and id not in publications.columns:
        raise InvalidValue(f"there is no column {id!r} for the ids; the columns are {', '.join(publications.columns)}")
    _check_types(publications, id)
    store = str(Path(subscriptions).absolute())
    slices = SliceReader(Path(store)).settings.slices
    spark = publications.sparkSession
    count = hosts if hosts is not None else max(1, spark.sparkContext.defaultParallelism)
    assignment = Assignment.even(slices, count)
    count = len(assignment.hosts)
    version = None if publications.isStreaming else store_version(store).number
    key = sf.xxhash64(sf.col(f"`{id}`")) if id is not None else sf.monotonically_increasing_id()
    keyed = publications.withColumn(KEY, key)
    exploded = keyed.withColumn(HOST, sf.explode(sf.array(*(sf.lit(host) for host in range(count)))))
    matched = exploded.repartitionById(count, sf.col(f"`{HOST}`")).mapInArrow(
        _match_columns(store, version, assignment, id), NOTIFIED_SQL
    )
    return exit_point(matched, EXITS_A_HOST * count)


def _check_types(publications: DataFrame, id: str | None) -> None:
    """Refuse before the job starts what every row would be refused for."""
    for field in publications.schema.fields:
        is_point = field.name == POINT and isinstance(field.dataType, ArrayType)
        if not (isinstance(field.dataType, ATTRIBUTE_TYPES) or is_point or field.name == id):
            raise InvalidValue(
                f"column {field.name!r} is of type {field.dataType.simpleString()}; "
                "cast it to string, a number or boolean, or leave it out"
            )


def exit_point(matched: DataFrame, partitions: int) -> DataFrame:
    """EP: one row for each publication, from the rows of all hosts."""
    slot = sf.pmod(sf.col("key"), sf.lit(partitions)).cast("int")
    return matched.repartitionById(partitions, slot).mapInArrow(merge_hosts, NOTIFIED_SQL)


def _match_columns(
    store: str, version: int | None, assignment: Assignment, id: str | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """M on columns: the partition is the host's, as its rows say."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pinned = store_version(store, version)
        for batch in batches:
            if not batch.num_rows:
                continue
            host = batch.column(HOST)[0].as_py()
            keys = batch.column(KEY).to_numpy()
            records = _publication_columns(batch, id)
            probes = [Probe(host=host, slice=number) for number in assignment.hosts[host]]
            lists = match_records(store, pinned, records, np.asarray(keys), probes, report_rejected=host == 0)
            for piece in _pieces(lists.to_records()):
                yield _without_unsigned(piece)

    return run


def _pieces(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in stretches of not too many ids each."""
    ends = records.column("subscriptions").offsets.to_numpy()
    first = 0
    while first < records.num_rows:
        last = int(np.searchsorted(ends, ends[first] + IDS_OF_A_PIECE_MAX, "right")) - 1
        last = min(max(last, first + 1), records.num_rows)
        yield records.slice(first, last - first)
        first = last


def _without_unsigned(records: pa.RecordBatch) -> pa.RecordBatch:
    """Ids as Spark can take them."""
    lists = records.column("subscriptions")
    ends = lists.offsets.to_numpy()
    signed = pa.ListArray.from_arrays(pa.array(ends - ends[0]), lists.flatten().cast(pa.int64()))
    return records.set_column(2, "subscriptions", signed)


def _publication_columns(batch: pa.RecordBatch, id: str | None) -> pa.RecordBatch:
    """Without our own columns, and with the user's id where the matchers' batches carry it."""
    names = [name for name in batch.schema.names if name not in (HOST, KEY)]
    columns = [batch.column(name) for name in names]
    if id is not None:
        if not _is_attribute(batch.column(id).type):  # a name only, a date perhaps
            names.remove(id)
            columns = [batch.column(name) for name in names]
        names.append("@id")
        columns.append(batch.column(id).cast(pa.string()))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _is_attribute(type: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    return any(is_kind(type) for is_kind in kinds)
