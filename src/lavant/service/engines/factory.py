"""Creates the engine of a server; the local one only if the Spark engine has delivered everything."""

from __future__ import annotations

from pathlib import Path

from lavant.broker.subscriptions.log_offsets import LogOffsets
from lavant.core.errors import InvalidValue
from lavant.service.engines.interface import Engine
from lavant.service.engines.local import LocalEngine
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.settings import SparkSettings

DIRECTORY = "spark"
"""Subdirectory of the data directory."""


def engine_of(spark: SparkSettings | None, data: Path | None, offsets: LogOffsets, identity: bytes) -> Engine:
    """The local engine, or Spark if there are settings for it. `identity` is that of the journal."""
    if spark is None:
        if offsets.lag:
            raise InvalidValue(
                f"{offsets.lag} publications were accepted by the Spark engine and are not delivered yet; start with "
                "--engine spark until lavant_engine_owed at /metrics is 0, then change the engine"
            )
        return LocalEngine()
    if data is None:
        raise InvalidValue("the Spark engine keeps publications in logs on disk; give --data DIR, not --memory")
    return SparkEngine(data / DIRECTORY, offsets, slices=spark.slices, identity=identity)
