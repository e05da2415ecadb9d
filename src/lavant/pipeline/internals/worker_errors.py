"""What Spark reports of an error in a Python worker: one line if it is Lavant's own, else the traceback.

Private: the worker reads `SPARK_HIDE_TRACEBACK` in its environment when a task fails, and ends after that. The setting
of the session, `spark.sql.execution.pyspark.udf.hideTraceback.enabled`, would hide everybody's tracebacks. The worker
that makes a stream's reader replaces an error in it by one of its own, so that a refusal must wait for the first call.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

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


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """The reader that is made, or one that reports why it cannot be."""
    try:
        return make()
    except LavantError as error:
        return RefusedStreamReader(error)


@with_refusals_in_one_line
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, error: LavantError) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
