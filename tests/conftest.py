"""Settings of all tests: the profiles of Hypothesis; `scheduling` distributes tests over processes.

Profiles: random on a developer's machine, repeatable in continuous integration, few in `make quick`, long in a soak.
HYPOTHESIS_PROFILE names one; without it, CI decides.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from tests.scheduling import pytest_collection_modifyitems, pytest_xdist_make_scheduler

__all__ = ["pytest_collection_modifyitems", "pytest_xdist_make_scheduler"]

# No deadline and no complaint about slowness: the first call of a kernel compiles it, and machines are shared.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.register_profile("quick", parent=settings.get_profile("local"), max_examples=10)
settings.register_profile("soak", parent=settings.get_profile("local"), max_examples=10_000)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))
