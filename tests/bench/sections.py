"""The tables of `make bench` beside that of matchers: add a new one here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession
from tests.bench.balancing import COLUMNS as BALANCING_COLUMNS
from tests.bench.balancing import measure_balancing
from tests.bench.exit import COLUMNS as EXIT_COLUMNS
from tests.bench.exit import measure_exit
from tests.bench.federation import COLUMNS as FEDERATION_COLUMNS
from tests.bench.federation import measure_federation
from tests.bench.matching import CORES
from tests.bench.models import COLUMNS as MODEL_COLUMNS
from tests.bench.models import measure_models
from tests.bench.petri.table import COLUMNS as PETRI_COLUMNS
from tests.bench.petri.table import measure_petri
from tests.bench.pipeline import COLUMNS as PIPELINE_COLUMNS
from tests.bench.pipeline import encrypted_load, measure_pipeline, stock_load
from tests.bench.publishing.table import COLUMNS as PUBLISHING_COLUMNS
from tests.bench.publishing.table import measure_publishing
from tests.bench.queues.table import COLUMNS as QUEUE_COLUMNS
from tests.bench.queues.table import measure_queues
from tests.bench.sizing import COLUMNS as SIZING_COLUMNS
from tests.bench.sizing import measure_sizing
from tests.bench.starts import COLUMNS as START_COLUMNS
from tests.bench.starts import measure_starts
from tests.bench.storage import COLUMNS as STORAGE_COLUMNS
from tests.bench.storage import measure_storage
from tests.bench.tables import COLUMNS as TABLE_COLUMNS
from tests.bench.tables import measure_tables
from tests.bench.text import COLUMNS as TEXT_COLUMNS
from tests.bench.text import measure_text

from lavant.pipeline.session import spark_session


class Measurement(NamedTuple):
    lines: list[list[str]]
    remarks: Sequence[str] = ()
    problem: str = ""
    """Makes the run fail."""


class Section(NamedTuple):
    name: str
    """For `--only`."""
    title: str
    columns: tuple[str, ...]
    measure: Callable[[], Measurement]
    left: frozenset[int] = frozenset({0})
    """Columns of text."""


@contextlib.contextmanager
def bench_spark(**settings: str) -> Iterator[SparkSession]:
    spark = spark_session(f"local[{CORES}]", name="lavant-bench", **settings)
    try:
        yield spark
    finally:
        spark.stop()


def _pipeline() -> Measurement:
    with bench_spark() as spark:
        return Measurement([measure_pipeline(spark, load()).cells() for load in (encrypted_load, stock_load)])


def _exit() -> Measurement:
    with bench_spark(spark_ui_enabled="true", spark_ui_port="0") as spark:
        return Measurement([row.cells() for row in measure_exit(spark)])


def _sizing() -> Measurement:
    with bench_spark() as spark:
        found = measure_sizing(spark)
    problem = f"constants of sizing are far off: {', '.join(found.far_off)}; see docs/sizing.md"
    return Measurement(found.lines, problem=problem if found.far_off else "")


SECTIONS = (
    Section("patterns", "Filters of text", TEXT_COLUMNS, lambda: Measurement(measure_text())),
    Section("pipeline", "The pipeline on Spark", PIPELINE_COLUMNS, _pipeline),
    Section("exit", "The exit", EXIT_COLUMNS, _exit),
    Section("storage", "Streams by where their files are", STORAGE_COLUMNS, lambda: Measurement(measure_storage())),
    Section(
        "tables",
        "Tables on Spark, by hand and with match",
        TABLE_COLUMNS,
        lambda: Measurement(measure_tables()),
        frozenset({0, 2}),
    ),
    Section("sizing", "Constants of sizing", SIZING_COLUMNS, _sizing, frozenset({0, 1})),
    Section("queues", "Durable queues", QUEUE_COLUMNS, lambda: Measurement(*measure_queues())),
    Section("publishing", "Publishing", PUBLISHING_COLUMNS, lambda: Measurement(*measure_publishing())),
    Section("federation", "Federations", FEDERATION_COLUMNS, lambda: Measurement(*measure_federation())),
    Section(
        "balancing", "Balancing", BALANCING_COLUMNS, lambda: Measurement(measure_balancing()), frozenset({0, 1, 2})
    ),
    Section("models", "Models", MODEL_COLUMNS, lambda: Measurement(measure_models())),
    Section("starts", "Starts", START_COLUMNS, lambda: Measurement(measure_starts())),
    Section("petri", "Petri nets", PETRI_COLUMNS, lambda: Measurement(measure_petri())),
)
