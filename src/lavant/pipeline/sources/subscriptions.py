"""`lavant_subscriptions`: a slice store as a table of its subscriptions.

>>> spark.read.format("lavant_subscriptions").load("store")      # doctest: +SKIP

`filter` is the text of the filter's normal form, which matches the same publications as the text that was subscribed
with; it is null for encrypted ones, which only the subscriber's key could turn into text. A task reads one slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lavant.broker.matching.plain.encoder import decode_filters
from lavant.broker.slices import SliceReader
from lavant.pipeline.internals.worker_errors import with_refusals_in_one_line
from lavant.pipeline.sources.options import check_schema, check_visible, count_option, place_of

ROWS_AT_ONCE = 4096
SCHEMA = pa.schema([("id", pa.int64()), ("slice", pa.int32()), ("filter", pa.string())])


@with_refusals_in_one_line
class SubscriptionSource(DataSource):
    """Option `version`: a version that the store still keeps, by default the latest."""

    @classmethod
    def name(cls) -> str:
        return "lavant_subscriptions"

    def schema(self) -> str:
        return "id bigint, slice int, filter string"

    def reader(self, schema: StructType) -> SubscriptionReader:
        check_schema(schema, self.schema(), self.name())
        return SubscriptionReader(self.options)


@with_refusals_in_one_line
class SubscriptionReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._place = place_of(options, SubscriptionSource.name())
        self._version = count_option(options, "version")

    def partitions(self) -> Sequence[InputPartition]:
        store = SliceReader(self._place)
        version = store.version(self._version)  # which has its own number of slices
        return [InputPartition((store.identity, version.number, slice)) for slice in range(len(version.slices))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        identity, version, slice = partition.value
        check_visible(self._place)
        store = SliceReader(self._place, identity)
        matcher = store.matcher(slice, store.version(version))
        is_plain = store.settings.scheme == "plain"
        for ids, filters in matcher.subscriptions():
            for first in range(0, len(ids), ROWS_AT_ONCE):
                some = np.arange(first, min(first + ROWS_AT_ONCE, len(ids)))
                texts = [str(each) for each in decode_filters(filters.take(some))] if is_plain else [None] * len(some)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(ids[some].astype(np.int64)),
                        pa.array(np.full(len(some), slice, np.int32)),
                        pa.array(texts, pa.string()),
                    ],
                    schema=SCHEMA,
                )
