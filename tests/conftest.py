"""Settings of all tests: profiles of Hypothesis, the order of tests, and those that run on the oldest Spark too.

Profiles: random on a developer's machine, repeatable in continuous integration, few in `make quick`, long in a soak.
HYPOTHESIS_PROFILE names one; without it, CI decides.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from tests.scheduling import longest_first, pytest_xdist_make_scheduler
from tests.spark_versions import mark_for_oldest

__all__ = ["pytest_xdist_make_scheduler"]


# First, so that `-m` sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_for_oldest(items)
    longest_first(items)


# No deadline and no complaint about slowness: the first call of a kernel compiles it, and machines are shared.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.register_profile("quick", parent=settings.get_profile("local"), max_examples=10)
settings.register_profile("soak", parent=settings.get_profile("local"), max_examples=10_000)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))
