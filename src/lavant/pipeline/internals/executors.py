"""Scales the executors of a running application through the driver's JVM.

Private, though the calls are public in Scala:

* `SparkContext._jsc`: `requestTotalExecutors` and `killExecutors`, to scale as the enforcer decides. Publicly there is
  only dynamic allocation, which decides by itself.
* `SparkContext._jsc`: `statusStore`, for the addresses of executors. The REST interface has them, but needs the web UI.
* `SparkContext._jvm`: `PythonUtils`, to make Scala's collections.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from pyspark.sql import SparkSession

POLL_S = 0.1
ASK_AGAIN_S = 3.0
"""Spark's scheduler forgets a request made while executors are still going down, so it is repeated."""


class Executors:
    """Of a standalone cluster, with one core each."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._jvm: Any = spark.sparkContext._jvm
        self._asked_s = 0.0

    def ids(self) -> list[str]:
        """In the order of their start."""
        joined = str(self._context.getExecutorIds().mkString(","))
        return sorted(joined.split(","), key=int) if joined else []

    def location(self, id: str) -> str | None:
        """The Spark location of an executor; None if it does not exist (yet)."""
        host = self.host(id)
        return None if host is None else f"executor_{host}_{id}"

    def host(self, id: str) -> str | None:
        """The name or address of an executor's machine, as Spark knows it; None if it does not exist (yet)."""
        summary = self._summaries().get(id)
        return None if summary is None else str(summary.hostPort().rpartition(":")[0])

    def request(self, count: int) -> bool:
        """Request at least so many executors; return whether they exist. Call it until they do."""
        if len(self.ids()) >= count:
            return True
        self._ask(count)
        return False

    def keep(self, ids: Collection[str], *, wait_s: float = 60.0) -> bool:
        """Release all others, and wait until they are gone; False if they are not in time."""
        deadline = time.monotonic() + wait_s
        while others := [id for id in self.ids() if id not in ids]:
            if time.monotonic() > deadline:
                return False
            # An executor that is killed before it is fully up leaves a part of Spark that talks to it
            # forever.
            summaries = self._summaries()
            is_up = all(id in summaries and summaries[id].maxMemory() > 0 for id in others)
            if is_up and self._ask(len(ids)):
                self._context.killExecutors(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(others))
            time.sleep(POLL_S)
        return True

    def _summaries(self) -> dict[str, Any]:
        active = self._context.statusStore().executorList(True)
        summaries = [active.apply(number) for number in range(active.size())]
        return {str(summary.id()): summary for summary in summaries}

    def _ask(self, count: int) -> bool:
        """False if the last request was a moment ago."""
        if time.monotonic() - self._asked_s < ASK_AGAIN_S:
            return False
        self._asked_s = time.monotonic()
        nowhere = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(self._jvm.java.util.HashMap())
        self._context.requestTotalExecutors(count, 0, nowhere)
        return True
