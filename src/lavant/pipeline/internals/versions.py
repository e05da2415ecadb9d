"""The supported versions of PySpark: the pipeline uses parts of Spark that change between versions."""

from __future__ import annotations

from lavant.core.packages import VersionRange

PYSPARK = VersionRange("pyspark", (4, 2), (4, 4))
"""4.2 is the first with data sources in Python that limit a micro-batch (`ReadMaxRows`).

`make test` runs on the newest, 4.3.0, which `uv.lock` names, and what depends on the version also on the oldest, 4.2.0.
"""
