"""The supported versions of PySpark: the pipeline uses parts of Spark that change between versions."""

from __future__ import annotations

from lavant.core.versions import VersionRange

PYSPARK = VersionRange("pyspark", (4, 2), (4, 4))
"""4.2 is the first with data sources in Python that limit a micro-batch (`ReadMaxRows`); 4.3 is the newest tested."""
