"""Subscriptions from a slice store, a DataFrame or a table, as an index; equal ones are indexed once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, StringType

from lavant.broker.filters import Filter
from lavant.broker.matching import PlainMatcher
from lavant.broker.matching.segmented import SegmentedMatcher
from lavant.broker.slices import SliceReader
from lavant.core.errors import InvalidValue
from lavant.core.ids import SUBSCRIPTION_ID_MAX
from lavant.pipeline.tables.columns import quoted
from lavant.pipeline.tables.indexes import NUMBERS, TableIndex, keep_index, known_index

INDEX_BYTES_MAX = 2 << 30
"""An index up to this size is opened whole by each Python worker; the workers of a machine share its memory."""

Subscriptions = str | Path | DataFrame


def index_of(
    spark: SparkSession,
    subscriptions: Subscriptions,
    *,
    id: str = "id",
    filter: str = "filter",
    groups: int | None = None,
) -> TableIndex:
    """The index of these subscriptions: made now, or found again."""
    store = store_of(subscriptions)
    if store is not None:
        return _index_of_store(store, groups)
    return _index_of_table(_table(spark, subscriptions), id=id, filter=filter, groups=groups)


def store_of(subscriptions: Subscriptions) -> SliceReader | None:
    """The slice store that is meant, if it is one."""
    if isinstance(subscriptions, DataFrame):
        return None
    if not isinstance(subscriptions, str | Path):
        raise InvalidValue(
            f"subscriptions are a slice store (a path or URI), a DataFrame or the name of a table, got a "
            f"{type(subscriptions).__name__}"
        )
    text = str(subscriptions)
    if isinstance(subscriptions, Path) or "/" in text or (Path(text) / "store.json").exists():
        return SliceReader(subscriptions)
    return None


def _table(spark: SparkSession, subscriptions: Subscriptions) -> DataFrame:
    """The table that is meant."""
    if isinstance(subscriptions, DataFrame):
        return subscriptions
    try:
        table = spark.table(str(subscriptions))
        table.schema  # noqa: B018  Spark Connect looks for the table only now
    except AnalysisException:
        raise InvalidValue(
            f"{str(subscriptions)!r} is neither a slice store (there is no {subscriptions}/store.json) nor a table"
        ) from None
    return table


def _index_of_store(store: SliceReader, groups: int | None) -> TableIndex:
    """The index of the latest version: all slices in one matcher, or in several if that is too large."""
    version = store.version()
    count = len(version.slices)
    if groups is not None and groups > count:
        raise InvalidValue(f"the store has {count} slices, so it makes at most as many groups, got {groups}")
    key = _key(["store", store.identity, str(version.number), str(groups)])
    known = known_index(key)
    if known is not None:
        return known
    slices = [store.matcher(number, version) for number in range(count)]
    if groups is None:
        groups = min(count, _groups(sum(matcher.statistics().memory_bytes for matcher in slices)))
    kind: type[SegmentedMatcher[Any, Any]] = type(slices[0])
    parts = [kind.union(slices[number::groups]) for number in range(groups)]
    return keep_index(key, parts, ids=None, lists=NUMBERS)


def _index_of_table(table: DataFrame, *, id: str, filter: str, groups: int | None) -> TableIndex:
    """The index of a table of ids and filters, found again if its content was indexed before."""
    if table.isStreaming:
        raise InvalidValue(
            "the subscriptions are a streaming DataFrame, and they are read once; give a batch DataFrame, or a slice "
            "store, whose changes a streaming table of events follows"
        )
    for name in (id, filter):
        if table.columns.count(name) != 1:
            raise InvalidValue(
                f"the subscriptions need one column {name!r}, and have {', '.join(table.columns)}; "
                "name theirs with id=… and filter=…"
            )
    lists = ArrayType(table.schema[id].dataType, containsNull=table.schema[id].nullable)
    if not isinstance(table.schema[filter].dataType, StringType):
        raise InvalidValue(
            f"column {filter!r} of the subscriptions is of type {table.schema[filter].dataType.simpleString()}; "
            "filters are texts"
        )
    try:
        rows = table.select(sf.col(quoted(id)).alias("id"), sf.col(quoted(filter)).alias("filter")).toArrow()
    except (PySparkTypeError, pa.ArrowInvalid) as error:
        kind = table.schema[id].dataType.simpleString()
        problem = str(error).splitlines()[0]
        raise InvalidValue(f"ids of type {kind} cannot leave Spark: {problem}; cast {id!r} to string") from None
    rows = in_order(rows.combine_chunks())
    key = _key(["table", lists.json(), str(groups)], rows)
    known = known_index(key)
    if known is not None:
        return known
    rows = rows.take(pc.sort_indices(rows, [("filter", "ascending")]))  # equal filters have adjacent numbers
    whole = _matcher(rows)
    groups = _groups(whole.statistics().memory_bytes) if groups is None else groups
    numbers = np.arange(len(rows))
    parts = [whole] if groups == 1 else [_matcher(rows, numbers[group::groups]) for group in range(groups)]
    return keep_index(key, parts, ids=_one_array(rows.column("id")), lists=lists)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows in an order of their own, since that of a table is not its content."""
    keys = [("id", "ascending"), ("filter", "ascending")]  # ids mostly differ, and filters are longer
    try:
        return rows.take(pc.sort_indices(rows, keys))
    except (pa.ArrowTypeError, pa.ArrowNotImplementedError):  # lists and maps have no order
        texts = pa.array([repr(id) for id in rows.column("id").to_pylist()], pa.string())
        return rows.take(pc.sort_indices(rows.set_column(rows.schema.get_field_index("id"), "id", texts), keys))


def _groups(size_bytes: int) -> int:
    return max(1, -(-size_bytes // INDEX_BYTES_MAX))


def _key(words: Sequence[str], rows: pa.Table | None = None) -> str:
    content = hashlib.blake2b("\n".join(words).encode(), digest_size=16)
    if rows is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        content.update(sink.getvalue())
    return content.hexdigest()


def _matcher(rows: pa.Table, numbers: Any = None) -> PlainMatcher:
    if len(rows) > SUBSCRIPTION_ID_MAX:
        raise InvalidValue(f"a table of subscriptions has at most {SUBSCRIPTION_ID_MAX} rows, got {len(rows)}")
    numbers = np.arange(len(rows)) if numbers is None else numbers
    texts = rows.column("filter").take(pa.array(numbers)).to_pylist()
    matcher = PlainMatcher()
    matcher.add(numbers, _parsed(texts, numbers, rows.column("id")))
    return matcher


def _parsed(texts: list[str | None], numbers: Any, ids: pa.ChunkedArray) -> list[Filter]:
    parsed: dict[str, Filter] = {}
    for text, number in zip(texts, numbers, strict=True):
        if text is None:
            raise InvalidValue(f"subscription {ids[number].as_py()!r} has no filter (NULL); leave it out")
        if text not in parsed:
            try:
                parsed[text] = Filter.parse(text)
            except InvalidValue as error:
                problem = str(error).splitlines()[0]
                raise InvalidValue(
                    f"subscription {ids[number].as_py()!r}: {problem}; its filter is {text!r:.200}"
                ) from None
    return [parsed[text] for text in texts if text is not None]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks
