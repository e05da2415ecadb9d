"""The executors of a running application, more or fewer of them, through the driver's JVM."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

POLL_S = 0.1
ASK_AGAIN_S = 3.0
"""A request that comes while executors are still going down is forgotten by Spark's scheduler; so it is repeated."""


class Executors:
    """Of a standalone cluster, with one core each."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._jvm: Any = spark.sparkContext._jvm

    def ids(self) -> list[str]:
        """In the order of their start."""
        joined = str(self._context.getExecutorIds().mkString(","))
        return sorted(joined.split(","), key=int) if joined else []

    def resize(self, count: int, *, wait_s: float = 60.0) -> bool:
        """Ask for so many executors and wait until they are there; False if they do not come (or go) in time."""
        deadline = time.monotonic() + wait_s
        asked = 0.0
        while True:
            running = self.ids()
            if len(running) == count:
                return True
            if time.monotonic() > deadline:
                return False
            if time.monotonic() - asked > ASK_AGAIN_S:
                asked = time.monotonic()
                self._request(count)
                if len(running) > count:
                    self._kill(running[count:])
            time.sleep(POLL_S)

    def _request(self, count: int) -> None:
        nowhere = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(self._jvm.java.util.HashMap())
        self._context.requestTotalExecutors(count, 0, nowhere)

    def _kill(self, ids: list[str]) -> None:
        self._context.killExecutors(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(ids))
