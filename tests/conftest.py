"""What holds for all tests: Hypothesis's profiles, and which tests stay together when several processes share them.

Profiles: random on a developer's machine, repeatable in continuous integration, long in a soak. HYPOTHESIS_PROFILE
names one; without it, CI decides.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline and no complaint about slowness: the first call of a kernel compiles it, and machines are shared.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.register_profile("soak", parent=settings.get_profile("local"), max_examples=10_000)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file share its servers, and all that use Spark share one session: each group goes to one process.

    The long ones begin, so that no process is left with them when the others have nothing more to do.
    """
    for item in items:
        is_spark = "shared_spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if is_spark else item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: "/integration/" not in item.nodeid)
