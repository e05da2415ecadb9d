"""The query from one topic to another."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from lavant.broker.slices import SliceReader
from lavant.core.files import is_uri
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.travel import SliceTravel
from lavant.pipeline.sources.kafka.connector import missing_connector
from lavant.pipeline.sources.kafka.records import COLUMNS, TopicMatch, match_function
from lavant.pipeline.sources.kafka.topics import (
    SECRETS,
    KafkaTopic,
    check_topics,
    client_options,
    source_options,
    with_names,
)
from lavant.pipeline.tables.indexes import executors_share_disk, is_connect

RECORDS_OF_A_BATCH_MAX = 100_000
METRICS = "lavant"
"""Name of the observed metrics in the query's progress: `notifications` and `rejected`, both numbers of records."""


def match_topic(
    spark: SparkSession,
    input: KafkaTopic,
    subscriptions: str,
    output: KafkaTopic,
    *,
    checkpoint: str,
    options: Mapping[str, str] | None = None,
    rejected_topic: str | None = None,
    available_now: bool = False,
) -> StreamingQuery:
    """Start a query that matches the records of a topic and writes their notifications to another.

    `options` are those of Kafka's clients (`security.protocol` …) and of Spark's source (`startingOffsets`,
    `maxOffsetsPerTrigger` …). Refused publications go to `rejected_topic`, by default to the output with the reason.
    """
    given = with_names(options or {})
    check_topics(input, output, rejected_topic, given)
    clients = client_options(given)
    spark.conf.set("spark.sql.redaction.options.regex", f"{SECRETS}|url")
    source = spark.readStream.format("kafka").options(**clients).options(**_starting(source_options(given)))
    source = source.option("kafka.bootstrap.servers", input.servers).option("subscribe", input.name)
    try:
        records = source.load()
    except AnalysisException as error:
        raise missing_connector(spark, error) or error from None
    found = notifications_of(records, subscriptions, output.name, rejected_topic=rejected_topic)
    sink = found.writeStream.format("kafka").options(**clients).option("kafka.bootstrap.servers", output.servers)
    sink = sink.option("checkpointLocation", checkpoint).queryName(f"lavant {input.name} to {output.name}")
    return (sink.trigger(availableNow=True) if available_now else sink).start()


def notifications_of(
    records: DataFrame, subscriptions: str, topic: str, *, rejected_topic: str | None = None
) -> DataFrame:
    """The notifications of a DataFrame of Kafka records, as records: key, value and topic.

    Tasks read the latest subscriptions when they start. Where executors do not reach the store, those of now travel to
    them through Spark.
    """
    refused = rejected_topic if rejected_topic is not None else topic
    settings = _settings(records.sparkSession, SliceReader(subscriptions), topic, refused)
    wanted = records.select("key", "value", "topic", "partition", "offset")
    found = wanted.mapInArrow(match_function(settings), COLUMNS)
    counted = found.observe(
        METRICS, f.count(f.lit(1)).alias("notifications"), f.count_if(f.col("rejected")).alias("rejected")
    )
    return counted.select("key", "value", "topic")


def _settings(spark: SparkSession, store: SliceReader, topic: str, refused: str) -> TopicMatch:
    if is_uri(store.address) or is_connect(spark) or executors_share_disk(spark):
        return TopicMatch(SlicePlace(store.address, store.identity, store.settings.scheme), topic, refused)
    version = store.version()
    place, luggage = SliceTravel(spark.sparkContext, shared=False).pack(store, version)
    return TopicMatch(place, topic, refused, version, luggage)


def _starting(options: dict[str, str]) -> dict[str, str]:
    """A new stream starts at the topic's first record, and takes a bounded number of records at once."""
    starts = [name for name in options if name.startswith("starting")]
    defaults = {"maxOffsetsPerTrigger": str(RECORDS_OF_A_BATCH_MAX)}
    if not starts:
        defaults["startingOffsets"] = "earliest"
    return defaults | options
