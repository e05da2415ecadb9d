"""Spark's Kafka connector: a Java library that PySpark does not contain."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lavant.core.errors import MissingComponent

VARIABLE = "LAVANT_KAFKA_JARS"
"""Names a directory with the connector's jars."""
ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def connector_settings() -> dict[str, str]:
    """Settings for `spark_session` that load the connector from the directory that the environment names."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return {}
    jars = sorted(Path(directory).glob("*.jar"))
    if not jars:
        raise MissingComponent(f"{VARIABLE} is {directory}, where there are no jars; {_remedy('VERSION')}")
    return {"spark_jars": ",".join(str(jar.absolute()) for jar in jars)}


def missing_connector(spark: SparkSession, error: AnalysisException) -> MissingComponent | None:
    """The error to raise if Spark could not find Kafka."""
    if "kafka" not in str(error).lower() or "find" not in str(error).lower():
        return None
    return MissingComponent(f"Spark has no Kafka connector; {_remedy(spark.version)}")


def _remedy(version: str) -> str:
    return (
        f"get {ARTIFACT}:{version} with its dependencies (mvn dependency:copy-dependencies, or tools/kafka of Lavant's "
        f"repository), and set {VARIABLE} to their directory, or set spark.jars or spark.jars.packages yourself"
    )
