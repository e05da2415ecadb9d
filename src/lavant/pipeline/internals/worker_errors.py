"""What Spark reports of an error in a Python worker: one line if it is Lavant's own, else the traceback.

Private: the worker reads `SPARK_HIDE_TRACEBACK` in its environment when a task fails, and ends after that. The setting
of the session, `spark.sql.execution.pyspark.udf.hideTraceback.enabled`, would hide everybody's tracebacks.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from lavant.core.errors import LavantError

T = TypeVar("T")


@contextmanager
def refusals_in_one_line() -> Iterator[None]:
    """For a task: a `LavantError` inside is reported without its traceback, since its text says what to do."""
    try:
        yield
    except LavantError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def with_refusals_in_one_line(kind: type[T]) -> type[T]:
    """For a data source, its readers and writers: Spark calls their methods in workers, the driver's ones too."""
    for name, method in vars(kind).items():
        if isinstance(method, FunctionType):
            setattr(kind, name, _in_one_line(method))
    return kind


def _in_one_line(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with refusals_in_one_line():
            result = method(*arguments, **named)
        return _items(result) if isinstance(result, Iterator) else result

    return call


def _items(result: Iterator[T]) -> Iterator[T]:
    with refusals_in_one_line():
        yield from result
