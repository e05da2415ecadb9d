"""One Spark, and one server, for all tests of this folder that can share it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.integration.kafka import connector_jars
from tests.integration.serving import Served, ServedWithLimits
from tests.integration.talking_http import Talker

from lavant.pipeline.session import spark_session

# What Java compiles best takes longest to compile, and no Java here lives long enough to gain from it.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SparkSession]:
    settings = {"spark_sql_shuffle_partitions": "2", "spark_jars": connector_jars()}
    session = spark_session("local[2]", name="lavant-tests", **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for many tests, each with names of its own. It waits for nobody for long, and tries again soon."""
    limits = {
        **{"body_s_max": 3.0, "head_s_max": 3.0, "unread_s_max": 2.0, "heartbeat_s": 1.0, "settle_s": 0.5},
        **{"streams_max": 20, "webhook_backoff_s": 0.02, "webhook_backoff_s_max": 0.1, "webhook_requests_max": 3},
    }
    with ServedWithLimits(tmp_path_factory.mktemp("brisk"), **limits) as server:
        yield server
        assert server.stop() == 0
        assert server.complaints == ""


@pytest.fixture
def talker(brisk: Served) -> Iterator[Talker]:
    with Talker(brisk) as client:
        yield client
