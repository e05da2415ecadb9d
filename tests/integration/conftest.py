"""One Spark, cluster, object store and server for all tests of this folder that can share them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.bare_cluster import BareCluster, bare_cluster
from tests.integration.kafka import connector_jars
from tests.integration.object_store import CREDENTIALS, ObjectStore, object_store
from tests.integration.serving import Served, ServedWithLimits
from tests.integration.talking_http import Talker
from tests.spark_classes import java_options

from lavant.pipeline.session import spark_session

os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SparkSession]:
    settings = {"spark_sql_shuffle_partitions": "2", "spark_jars": connector_jars()}
    session = spark_session("local[2]", name="lavant-tests", **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the driver, which executors of the bare cluster do not see."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, elsewhere: Path) -> Iterator[BareCluster]:
    """Two machines that share no disk with each other or with the driver."""
    directory = tmp_path_factory.mktemp("bare")
    with bare_cluster(directory, workers=2, cores=1, hidden=[elsewhere], environment=CREDENTIALS) as running:
        yield running


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server. Tests use names of their own."""
    with object_store(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the object store, in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


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
