"""One task on each host: Spark runs it where the host is, which neither its SQL nor its Python sources can be told."""

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
    """`work` on the bytes of each task, at the place that the task names; the results in the order of the tasks.

    An executor that is busy is waited for (`spark.locality.wait.process`); for one that is gone, another does.
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
