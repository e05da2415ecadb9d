"""Which versions of PySpark this runs on: it has to know parts of Spark that change from one version to the next."""

from __future__ import annotations

import re

from lavant.core.errors import MissingComponent

OLDEST, TOO_NEW = (4, 2), (4, 4)
"""4.2 is the first with data sources in Python that limit a micro-batch (`ReadMaxRows`); 4.3 is the newest tried."""


def check_pyspark(version: str) -> None:
    """Raise in one line unless it is a version that this is known to run on."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not OLDEST <= (int(found[1]), int(found[2])) < TOO_NEW:
        wanted = f">={_text(OLDEST)},<{_text(TOO_NEW)}"
        raise MissingComponent(f"Spark needs pyspark {wanted} here, and {version} is installed; install one of those")


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
