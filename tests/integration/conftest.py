"""One Spark for all tests of this folder that can share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lavant.pipeline.session import spark_session


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SparkSession]:
    session = spark_session("local[2]", name="lavant-tests", spark_sql_shuffle_partitions="2")
    yield session
    session.stop()
