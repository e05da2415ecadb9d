"""Runs one task on each host at its location, which neither Spark's SQL nor its Python sources can specify.

Private, though the call is public in Scala; Python has no other way:

* `SparkContext._jsc` and `SparkContext._jvm`: `makeRDD` with locations.
* `pyspark.core.rdd`: `RDD` of a Java object, and `pyspark.serializers`: `NoOpSerializer`, for bytes as they are.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import NoOpSerializer

from lavant.pipeline.cluster.assignment import ANYWHERE

Result = TypeVar("Result")


def run_on_hosts(
    context: SparkContext, tasks: Sequence[tuple[str, bytes]], work: Callable[[bytes], Result]
) -> list[Result]:
    """Run `work` on the bytes of each task, at the task's location; results in the order of the tasks.

    It waits for a busy executor (`spark.locality.wait.process`); if an executor is gone, another one runs the task.
    """

    def run(items: Iterable[Any]) -> list[Result]:
        return [work(bytes(item)) for item in items]

    jvm: Any = context._jvm
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    placed = [
        jvm.scala.Tuple2(bytearray(data), to_seq([] if location == ANYWHERE else [location]))
        for location, data in tasks
    ]
    scala: Any = context._jsc.sc()
    java = scala.makeRDD(to_seq(placed), context._jsc.emptyRDD().classTag()).toJavaRDD()
    return RDD(java, context, NoOpSerializer()).mapPartitions(run).collect()
