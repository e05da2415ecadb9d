"""What Spark reports of an error in a Python worker: one line if it is Lavant's own, else the traceback.

Private: the worker reads `SPARK_HIDE_TRACEBACK` in its environment when a task fails, and ends after that. The setting
of the session, `spark.sql.execution.pyspark.udf.hideTraceback.enabled`, would hide everybody's tracebacks.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lavant.core.errors import LavantError


@contextmanager
def refusals_in_one_line() -> Iterator[None]:
    """For a task: a `LavantError` inside is reported without its traceback, since its text says what to do."""
    try:
        yield
    except LavantError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
