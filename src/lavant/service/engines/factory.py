"""Which engine a server has, and that it goes on with what another one left."""

from __future__ import annotations

from pathlib import Path

from lavant.broker.subscriptions.log_offsets import LogOffsets
from lavant.core.errors import InvalidValue
from lavant.service.engines.interface import Engine
from lavant.service.engines.local import LocalEngine
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.settings import SparkSettings

DIRECTORY = "spark"
"""Within the server's own."""


def engine_of(spark: SparkSettings | None, data: Path | None, lanes: LogOffsets, identity: bytes) -> Engine:
    """The local one, unless there are settings of Spark's. `identity` is that of the journal with the lanes."""
    if spark is None:
        if lanes.lag:
            raise InvalidValue(
                f"{lanes.lag} publications were accepted by the Spark engine and are not delivered yet; start with "
                "--engine spark until lavant_engine_owed at /metrics is 0, then change the engine"
            )
        return LocalEngine()
    if data is None:
        raise InvalidValue("the Spark engine keeps publications in logs on disk; give --data DIR, not --memory")
    return SparkEngine(data / DIRECTORY, lanes, slices=spark.slices, identity=identity)
