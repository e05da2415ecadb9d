"""Spark's Java process as the driver knows it: whether it lives, and the errors of calls into it.

* `SparkContext._gateway` to notice that the process has ended. Publicly, calls fail one by one, or wait for ever.
* `SparkContext._jsc` to see whether Spark has stopped. `getActiveSession` only knows of a `stop` in Python.
* `py4j.protocol` for the error of a call whose Java is gone. PySpark documents only `PySparkException`.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import subprocess
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

SPARK_ERRORS: tuple[type[Exception], ...] = (Py4JError, PySparkException)


def java_process(spark: SparkSession) -> subprocess.Popen[bytes]:
    """The process that PySpark started with the session."""
    gateway: Any = spark.sparkContext._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def is_stopped(context: SparkContext) -> bool:
    java: Any = context._jsc
    return java is None or bool(java.sc().isStopped())
