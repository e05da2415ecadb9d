"""Windowed estimates from telemetry files: the Spark counterpart of `lavant.core.estimation.Estimator`.

Spark reduces the rows of each window to integers, and `core.estimation.estimate` computes figures from them, the same
function that the embedded estimator calls. `transform` is the same for a stream and for history; history has no late
rows, because a batch query ignores watermarks.

Late rows: a micro-batch drops rows of windows that were closed before it began. Spark counts them by group (window, job
type, topic), not by row: `late_groups`. Rows lost to a stream are those that history has and the stream has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from lavant.core.errors import InvalidValue
from lavant.core.estimation import ESTIMATE_SCHEMA, EstimationConfig, WindowSums, estimate
from lavant.core.estimation.buckets import SIGNIFICANT_BITS
from lavant.core.estimation.sums import PERCENTILES
from lavant.core.telemetry import (
    ANY_JOB_TYPE,
    COUNTED,
    DURATION_US_MAX,
    NAME_LENGTH_MAX,
    PUBLICATIONS_MAX,
    SUBSCRIPTIONS_MAX,
    TELEMETRY_SCHEMA,
    TELEMETRY_VERSION,
    TIME_US_MAX,
    TIMED,
    ObservationKind,
    Outcome,
)


class TelemetryJobConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Source of telemetry and destination of estimates: directories that all executors reach.

    With `interval_ms` the stream runs continuously, a micro-batch each interval; without it, it processes what is there
    and ends.
    """

    source: str
    output: str
    checkpoint: str
    estimation: EstimationConfig = EstimationConfig()
    interval_ms: int | None = None
    files_of_a_batch_max: int = 1000

    def __post_init__(self) -> None:
        if self.interval_ms is not None and self.interval_ms < 1:
            raise InvalidValue(f"interval_ms must be positive, got {self.interval_ms}; omit it to run once")
        if self.files_of_a_batch_max < 1:
            raise InvalidValue(f"files_of_a_batch_max must be positive, got {self.files_of_a_batch_max}")


def transform(telemetry: DataFrame, config: EstimationConfig) -> DataFrame:
    """Estimates of telemetry rows; of a stream, those of closed windows."""
    job_types = sf.array(sf.col("job_type"), sf.lit(ANY_JOB_TYPE)) if config.topics_overall else sf.array("job_type")
    sums = (
        telemetry.withColumn("time_us", _checked_time())
        .withColumn("time", sf.timestamp_micros("time_us"))
        .withWatermark("time", f"{config.lateness_ms} milliseconds")
        .withColumn("response_bucket", _response_bucket())
        .withColumn("job_type", sf.explode(job_types))
        .groupBy(sf.window("time", f"{config.window_ms} milliseconds").alias("window"), "job_type", "topic")
        .agg(*_aggregates())
        .withColumn("window_start_us", sf.unix_micros("window.start"))
        .withColumn("arrival_span_us", _span_us())
        .withColumn("gap_us2_sum", _gap_us2_sum())
    )
    # A plain Python function on one row per window: rows are few here, and Arrow functions would need pandas.
    finish = sf.udf(_finisher(config.window_ms), spark_schema(ESTIMATE_SCHEMA), useArrow=False)
    columns = (*(name for name in WindowSums.__struct_fields__ if name not in _NOT_SUMMED), "response_buckets")
    return sums.select(finish(sf.struct(*columns)).alias("estimate")).select("estimate.*")


def run(spark: SparkSession, config: TelemetryJobConfig) -> StreamingQuery:
    """Start the stream: new Parquet files of `source` become Parquet files of estimates in `output`."""
    session = spark.newSession()
    # Without them a window would stay open until later rows arrive.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    telemetry = (
        session.readStream.schema(spark_schema(TELEMETRY_SCHEMA))
        .option("maxFilesPerTrigger", config.files_of_a_batch_max)
        .parquet(config.source)
    )
    writer = (
        transform(telemetry, config.estimation)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", config.output)
        .option("checkpointLocation", config.checkpoint)
        .queryName("telemetry")
    )
    if config.interval_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.interval_ms} milliseconds").start()


def run_history(spark: SparkSession, config: TelemetryJobConfig) -> None:
    """Estimates of everything in `source`, including windows that a stream would keep open."""
    telemetry = spark.read.schema(spark_schema(TELEMETRY_SCHEMA)).parquet(config.source)
    transform(telemetry, config.estimation).write.mode("overwrite").parquet(config.output)


def late_groups(progress: Mapping[str, Any]) -> int:
    """Number of groups (window, job type, topic) of a micro-batch that came too late; from
    `StreamingQuery.lastProgress`.
    """
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns for Spark. All are nullable: Spark fills missing columns with null, and `transform` checks."""
    types: dict[pa.DataType, DataType] = {
        pa.int16(): ShortType(),
        pa.int32(): IntegerType(),
        pa.int64(): LongType(),
        pa.float64(): DoubleType(),
        pa.string(): StringType(),
    }
    return StructType([StructField(field.name, types[field.type]) for field in schema])


# ---- reducing ------------------------------------------------------------------------------------------------------

_BUCKETS = ("response_p50_bucket", "response_p95_bucket", "response_p99_bucket")
_NOT_SUMMED = (*_BUCKETS, "response_us_sum")
_EXACT = "decimal(19, 0)"  # a product of two has up to 38 digits, the most that Spark supports


def _aggregates() -> list[Column]:
    arrival, service, response, match = (sf.col("kind") == str(kind) for kind in ObservationKind)
    failed = sf.col("outcome") == str(Outcome.FAILED)
    duration_us = sf.col("duration_us")
    return [
        sf.count("*").alias("rows"),
        _sum(arrival, sf.col("publications")).alias("arrivals"),
        sf.sort_array(sf.collect_list(sf.when(arrival, sf.col("time_us")))).alias("arrival_times_us"),
        sf.count_if(service).alias("services"),
        sf.count_if(service & failed).alias("services_failed"),
        _sum(service, duration_us).alias("service_us_sum"),
        _sum(service, _product(duration_us, duration_us)).alias("service_us2_sum"),
        sf.count_if(response & ~failed).alias("responses"),
        sf.count_if(response & failed).alias("responses_failed"),
        _percentiles("response_bucket").alias("response_buckets"),
        _sum(match, _product(sf.col("publications"), sf.col("subscriptions"))).alias("tests"),
        _sum(match, sf.col("matches")).alias("matches"),
    ]


def _sum(condition: Column, value: Column) -> Column:
    return sf.coalesce(sf.sum(sf.when(condition, value)), sf.lit(0))


def _product(left: Column, right: Column) -> Column:
    return left.cast(_EXACT) * right.cast(_EXACT)


def _response_bucket() -> Column:
    """`core.estimation.buckets.bucket_of`, of responses that did not fail: all but the first bits are zeroed."""
    counts = (sf.col("kind") == str(ObservationKind.RESPONSE)) & (sf.col("outcome") == str(Outcome.OK))
    value = sf.when(counts, sf.col("duration_us"))
    dropped = sf.greatest(sf.length(sf.bin(value)) - SIGNIFICANT_BITS, sf.lit(0))
    return sf.call_function("shiftleft", sf.call_function("shiftright", value, dropped), dropped)


def _percentiles(name: str) -> Column:
    """Values of a column by nearest rank; Spark keeps a count for each distinct one, so buckets bound its state."""
    fractions = ", ".join(f"{fraction}D" for fraction in PERCENTILES)
    return sf.expr(f"percentile_disc(array({fractions})) within group (order by {name})")


def _span_us() -> Column:
    times = sf.col("arrival_times_us")
    return sf.coalesce(sf.array_max(times) - sf.array_min(times), sf.lit(0))


def _gap_us2_sum() -> Column:
    times = sf.col("arrival_times_us")
    gaps = sf.greatest(sf.size(times) - 1, sf.lit(0))
    squares = sf.zip_with(
        sf.slice(times, 2, gaps), sf.slice(times, 1, gaps), lambda later, earlier: (later - earlier) * (later - earlier)
    )
    return sf.aggregate(squares, sf.lit(0).cast("long"), lambda total, square: total + square)


def _finisher(window_ms: int) -> Callable[[Row], dict[str, Any]]:
    def finish(sums: Row) -> dict[str, Any]:
        values = sums.asDict()
        buckets = values.pop("response_buckets")
        figures: dict[str, str | int] = {
            name: value if isinstance(value, str) else int(value) for name, value in values.items()
        }
        if buckets is not None:
            figures |= {name: int(bucket) for name, bucket in zip(_BUCKETS, buckets, strict=True)}
        return msgspec.structs.asdict(estimate(msgspec.convert(figures, WindowSums), window_ms=window_ms))

    return finish


# ---- checking ------------------------------------------------------------------------------------------------------


def _checked_time() -> Column:
    """`time_us`, which every estimate needs, or an error that describes the invalid row."""
    row = sf.to_json(sf.struct(*TELEMETRY_SCHEMA.names))
    refusals = (
        sf.when(wrong, sf.raise_error(sf.concat(sf.lit(f"telemetry: {problem}; the row is "), row)).cast("long"))
        for problem, wrong in _problems()
    )
    return sf.coalesce(*refusals, sf.col("time_us"))


def _problems() -> list[tuple[str, Column]]:
    """The rules for a row: those of `core.telemetry`, in its order."""
    kind, outcome, duration_us = sf.col("kind"), sf.col("outcome"), sf.col("duration_us")
    publications, subscriptions, matches = sf.col("publications"), sf.col("subscriptions"), sf.col("matches")
    timed, counted = kind.isin(_texts(TIMED)), kind.isin(_texts(COUNTED))
    required = [field.name for field in TELEMETRY_SCHEMA if not field.nullable]
    return [
        *((f"column {name} is missing or null", sf.col(name).isNull()) for name in required),
        (f"this Lavant reads version {TELEMETRY_VERSION}", sf.col("version") != TELEMETRY_VERSION),
        (f"kind must be one of {', '.join(ObservationKind)}", ~kind.isin(_texts(tuple(ObservationKind)))),
        (f"outcome must be one of {', '.join(Outcome)}", ~outcome.isin(_texts(tuple(Outcome)))),
        (f"time_us must lie between 0 and {TIME_US_MAX}", ~sf.col("time_us").between(0, TIME_US_MAX)),
        ("services and responses have a duration_us, other rows none", timed == duration_us.isNull()),
        (f"duration_us must lie between 0 and {DURATION_US_MAX}", ~duration_us.between(0, DURATION_US_MAX)),
        ("only services and responses fail", (outcome == str(Outcome.FAILED)) & ~timed),
        (f"publications must lie between 0 and {PUBLICATIONS_MAX}", ~publications.between(0, PUBLICATIONS_MAX)),
        (f"subscriptions must lie between 0 and {SUBSCRIPTIONS_MAX}", ~subscriptions.between(0, SUBSCRIPTIONS_MAX)),
        ("arrivals and matches have publications, other rows none", counted == (publications == 0)),
        ("only matches have subscriptions", (subscriptions > 0) & (kind != str(ObservationKind.MATCH))),
        (
            "matches must lie between 0 and publications × subscriptions",
            (matches < 0) | (matches > publications * subscriptions),
        ),
        (f"job_type {ANY_JOB_TYPE!r} stands for all of them", sf.col("job_type") == ANY_JOB_TYPE),
        *(
            (f"{name} has more than {NAME_LENGTH_MAX} characters", sf.length(name) > NAME_LENGTH_MAX)
            for name in ("job_type", "topic", "host")
        ),
    ]


def _texts(values: tuple[str, ...]) -> list[str]:
    return [str(value) for value in values]
