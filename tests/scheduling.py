"""Which tests stay together and which run first when several processes of pytest-xdist share them.

The only file that uses internals of xdist, which may change with any version: `LoadScopeScheduling`, whose
`_split_scope` names the group of a test, and the option `loadscopereorder`, which says whether groups are sorted.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from lavant.core.packages import VersionRange

XDIST = VersionRange("pytest-xdist", (3, 8), (3, 9))
XDIST.check(version(XDIST.package))

LONGEST_FIRST = (
    "cluster",
    "test_cluster",
    "spark",
    "test_spark_engine",
    "test_autoscaling",
    "test_kafka",
    "test_rabbitmq",
    "integration",
)
"""They start first, so that no process is left with one of them when the others are done; the rest comes last."""

SHARE_SPARK = (
    "test_pipeline",
    "test_service_telemetry",
    "test_spark_identities",
    "test_spark_settings",
    "test_spark_sources",
    "test_spark_sql",
    "test_spark_tables",
    "test_sweep",
    "test_telemetry_job",
)
"""They share one Spark session, which takes long to start."""

SHARE_CLUSTER = ("test_bare_cluster", "test_bare_stream")
"""They share one cluster."""


def group(nodeid: str) -> str:
    """One process runs all tests of a group: those of a file share its servers, others Spark."""
    path = nodeid.partition("::")[0]
    name = path.rpartition("/")[2].removesuffix(".py")
    if name in SHARE_CLUSTER:
        return "cluster"
    return "spark" if name in SHARE_SPARK else path


def rank(item: pytest.Item) -> int:
    names = group(item.nodeid).removesuffix(".py").split("/")
    return next((rank for rank, name in enumerate(LONGEST_FIRST) if name in names), len(LONGEST_FIRST))


def longest_first(items: list[pytest.Item]) -> None:
    items.sort(key=rank)


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """In place of `--dist loadgroup`, which fails with pytest 9.2: xdist can no longer write groups into test names."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # which would put groups of many tests first
    return Groups(config, log)
