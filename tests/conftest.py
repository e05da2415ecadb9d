"""What holds for all tests: Hypothesis's profiles, and which tests stay together when several processes share them.

Profiles: random on a developer's machine, repeatable in continuous integration, few in `make quick`, long in a soak.
HYPOTHESIS_PROFILE names one; without it, CI decides.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# No deadline and no complaint about slowness: the first call of a kernel compiles it, and machines are shared.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.register_profile("quick", parent=settings.get_profile("local"), max_examples=10)
settings.register_profile("soak", parent=settings.get_profile("local"), max_examples=10_000)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))


LONGEST_FIRST = ("test_cluster", "spark", "test_spark_engine", "test_autoscaling", "test_rabbitmq", "integration")
"""So that no process is left with one of them when the others have nothing more to do; the rest comes last."""

SHARE_SPARK = (
    "test_pipeline",
    "test_service_telemetry",
    "test_spark_identities",
    "test_spark_tables",
    "test_sweep",
    "test_telemetry_job",
)
"""They use one session, which takes long to start."""


def group(nodeid: str) -> str:
    """Tests of one file share its servers, those on Spark its session: a group is for one process."""
    path = nodeid.partition("::")[0]
    name = path.rpartition("/")[2].removesuffix(".py")
    return "spark" if name in SHARE_SPARK else path


def place(item: pytest.Item) -> int:
    names = group(item.nodeid).removesuffix(".py").split("/")
    return next((place for place, name in enumerate(LONGEST_FIRST) if name in names), len(LONGEST_FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place)


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Not `--dist loadgroup`: pytest 9.2 does not let xdist write the groups into the names of tests, as it would."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # which would put groups of many tests first
    return Groups(config, log)
