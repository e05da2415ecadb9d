"""Which tests run on the oldest supported PySpark too, with the mark `oldest`: those of what changes between versions.

Every test that uses the shared Spark session is one of them, unless its file is named here. Tests that start a
Spark of their own take long, so those that reach the most of Spark's insides stand for them.
"""

from __future__ import annotations

import pytest

PUBLIC_ONLY = ("test_kafka", "test_sweep", "test_telemetry_job", "test_service_telemetry")
"""They use Spark through documented calls only."""

OWN_SPARK = {
    "test_cluster": "test_executors_follow_the_load_out_and_in_and_every_move_is_exact",
    "test_spark_engine": "test_publications_reach_the_queues_of_those_who_want_them",
}
"""A file and its test: executors that come and go, and the process of the Spark engine."""


def is_for_oldest(path: str, function: str, fixtures: list[str]) -> bool:
    name = path.rpartition("/")[2].removesuffix(".py")
    return OWN_SPARK.get(name) == function or ("shared_spark" in fixtures and name not in PUBLIC_ONLY)


def mark_for_oldest(items: list[pytest.Item]) -> None:
    for item in items:
        function = getattr(item, "originalname", item.name)
        if is_for_oldest(str(item.path), function, getattr(item, "fixturenames", [])):
            item.add_marker(pytest.mark.oldest)
