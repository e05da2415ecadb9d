"""`match`: which subscriptions does each row of a table match?

>>> matched = match(events, "subscriptions")                # doctest: +SKIP
>>> matched = match(events, spark.table("alerts"))          # doctest: +SKIP

If one executor can hold the index, every row is matched in its own partition, without a shuffle. Otherwise the
subscriptions form groups, what filters compare of a row is copied to each group, and a shuffle by row brings the
results together. Only that goes to Python, and a row's other columns stay in Spark's Java process. `explain()` shows
which: `ArrowEvalPython lavant_match_whole_index` or `lavant_match_slice_group`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from lavant.broker.slices import SliceReader
from lavant.core.errors import InvalidValue
from lavant.core.files import is_uri
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.tables.columns import TableAttribute, attributes_of, leaves_of, points_of, quoted
from lavant.pipeline.tables.indexes import NUMBERS, TableIndex, executors_share_disk, is_connect, shipped
from lavant.pipeline.tables.subscriptions import Subscriptions, index_of, store_of
from lavant.pipeline.tables.tasks import (
    REJECTED,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    ColumnTask,
    matching_group,
    matching_rows,
)

KEY, ROW, GROUP, FOUND = "lavant_key", "lavant_row", "lavant_group", "lavant_found"


def match(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    id: str = "id",
    filter: str = "filter",
    how: Literal["inner", "left"] = "inner",
    explode: bool = False,
    groups: int | None = None,
) -> DataFrame:
    """The rows of `events` that match anything, with the ids of the subscriptions they match.

    A row keeps its columns, and gets `subscriptions`, an array of ids, and `rejected`, the reason if its values cannot
    be compared. With `explode` it becomes a row for each match instead, with column `subscription`. `how="left"` also
    keeps rows that match nothing.

    `subscriptions` is a slice store (a path or URI), a DataFrame, or the name of a table. Such a table has the columns
    `id`, of any type, and `filter`, a text. Subscriptions are indexed in the driver, once for the same content.
    `groups` sets the number of groups that the index is divided into; by default it is one if it fits an executor.
    """
    if how not in ("inner", "left"):
        raise InvalidValue(f"how must be 'inner' or 'left', got {how!r}")
    if groups is not None and (not isinstance(groups, int) or groups < 1):
        raise InvalidValue(f"groups must be a positive integer, got {groups!r}")
    check_names(events.columns, explode=explode)
    store = store_of(subscriptions) if events.isStreaming else None
    if store is not None:
        matched = _follow(events, store, keep_unmatched=how == "left")
    else:
        index = index_of(events.sparkSession, subscriptions, id=id, filter=filter, groups=groups)
        matched = _match_index(events, index, keep_unmatched=how == "left")
    if not explode:
        return matched
    one = sf.explode_outer(SUBSCRIPTIONS).alias(SUBSCRIPTION)  # quicker than to send a row's columns for each match
    return matched.select(*map(quoted, events.columns), one, REJECTED)


def result_schema(events: StructType, lists: ArrayType, *, explode: bool) -> StructType:
    """The columns of the events, and those that a match adds."""
    found = StructField(SUBSCRIPTION, lists.elementType) if explode else StructField(SUBSCRIPTIONS, lists)
    return StructType([*events.fields, found, StructField(REJECTED, StringType())])


def attributes_in(events: StructType, index: TableIndex) -> list[TableAttribute]:
    """The attributes of the events that the index's filters see."""
    return points_of(events) if index.scheme == "encrypted" else attributes_of(leaves_of(events), index.dimensions)


def check_names(columns: list[str], *, explode: bool) -> None:
    """Raises unless the result can have these columns and those that it adds."""
    added = (SUBSCRIPTIONS, SUBSCRIPTION, REJECTED) if explode else (SUBSCRIPTIONS, REJECTED)
    seen: set[str] = set()
    for name in columns:
        if name.lower() in seen:
            raise InvalidValue(f"the table has two columns {name!r}; rename one")
        if name.lower() in added:
            raise InvalidValue(f"the table has a column {name!r} already, which the result adds; rename it")
        seen.add(name.lower())


def _match_index(events: DataFrame, index: TableIndex, *, keep_unmatched: bool) -> DataFrame:
    attributes = attributes_in(events.schema, index)
    if events.isStreaming and is_connect(events.sparkSession):
        raise InvalidValue(
            "Spark Connect does not bring the index of a table to the tasks of a streaming query; give the "
            "subscriptions as a store at a URI, which tasks open themselves"
        )
    index = shipped(index, events.sparkSession)
    if len(index.groups) == 1:
        return _match_whole(events, index, attributes, index.lists, keep_unmatched=keep_unmatched)
    if events.isStreaming:
        raise InvalidValue(
            f"the index has {len(index.groups)} groups, and a streaming table can be matched against one; "
            "give groups=1 if executors have the memory, or use the log stream"
        )
    return _match_groups(events, index, attributes, keep_unmatched=keep_unmatched)


def _follow(events: DataFrame, store: SliceReader, *, keep_unmatched: bool) -> DataFrame:
    """Each micro-batch sees the store as it is when its tasks start."""
    if not is_uri(store.address) and not executors_share_disk(events.sparkSession):
        raise InvalidValue(
            f"a streaming table follows the changes of its store, and executors do not reach {store.storage.uri}; "
            "give a store at a URI or, without Spark Connect, a DataFrame, which is read once"
        )
    followed = SlicePlace(store.address, store.identity, store.settings.scheme)
    encrypted = followed.scheme == "encrypted"
    attributes = points_of(events.schema) if encrypted else attributes_of(leaves_of(events.schema), None)
    return _match_whole(events, followed, attributes, NUMBERS, keep_unmatched=keep_unmatched)


def _match_whole(
    events: DataFrame,
    source: TableIndex | SlicePlace,
    attributes: list[TableAttribute],
    lists: ArrayType,
    *,
    keep_unmatched: bool,
) -> DataFrame:
    """Matches every row where it is."""
    function = _function(matching_rows(source, attributes), lists)
    name = FOUND
    while name in map(str.lower, events.columns):
        name += "_"
    found = events.withColumn(name, function(*_arguments(attributes)))
    ids, reason = f"{name}.{SUBSCRIPTIONS}", f"{name}.{REJECTED}"
    if not keep_unmatched:
        found = found.where((sf.size(ids) > 0) | sf.col(reason).isNotNull())
    return found.select(*map(quoted, events.columns), ids, reason)


def _function(task: ColumnTask, lists: ArrayType) -> Callable[..., Column]:
    """The task as a function of columns, whose result is a struct of ids and reason."""
    result = StructType([StructField(SUBSCRIPTIONS, lists), StructField(REJECTED, StringType())])
    # Not deterministic: Spark would call it twice otherwise, for the column and for the condition.
    function: Callable[..., Column] = arrow_udf(task, result).asNondeterministic()
    return function


def _arguments(attributes: list[TableAttribute]) -> list[Column]:
    return [_argument(attribute) for attribute in attributes] or [sf.lit(True)]


def _argument(attribute: TableAttribute) -> Column:
    """An attribute's values; where only that is visible, whether there is one."""
    column = sf.col(quoted(attribute.path[0]))
    for field in attribute.path[1:]:
        column = column.getField(field)
    return column if attribute.is_comparable else sf.when(column.isNotNull(), True)


def _match_groups(
    events: DataFrame, index: TableIndex, attributes: list[TableAttribute], *, keep_unmatched: bool
) -> DataFrame:
    """Copies what filters compare of every row to each group of subscriptions, then gathers the results of a row.

    The row itself goes with the copy for group 0.
    """
    count = len(index.groups)
    tasks = max(1, int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1) // count)
    seen = [argument.alias(f"lavant_{number}") for number, argument in enumerate(_arguments(attributes))]
    rows = events.select(sf.monotonically_increasing_id().alias(KEY), sf.struct("*").alias(ROW), *seen)
    copies = rows.withColumn(GROUP, sf.explode(sf.array(*map(sf.lit, range(count)))))
    copies = copies.withColumn(ROW, sf.when(sf.col(GROUP) == 0, sf.col(ROW)))
    spread = copies.repartitionById(count * tasks, (sf.col(GROUP) * tasks + sf.col(KEY) % tasks).cast("int"))
    function = _function(matching_group(index, attributes), index.lists)
    compared = [f"lavant_{number}" for number in range(len(seen))]
    found = spread.select(KEY, ROW, function(GROUP, *compared).alias(FOUND))
    gathered = found.groupBy(KEY).agg(
        sf.first(ROW, ignorenulls=True).alias(ROW),
        sf.flatten(sf.collect_list(f"{FOUND}.{SUBSCRIPTIONS}")).alias(SUBSCRIPTIONS),
        sf.first(f"{FOUND}.{REJECTED}", ignorenulls=True).alias(REJECTED),
    )
    if not keep_unmatched:
        gathered = gathered.where((sf.size(SUBSCRIPTIONS) > 0) | sf.col(REJECTED).isNotNull())
    return gathered.select(f"{ROW}.*", SUBSCRIPTIONS, REJECTED)
