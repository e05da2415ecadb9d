"""Stages of placed tasks: a Spark job whose tasks have preferred locations on both sides of a shuffle.

Neither Spark's SQL nor its Python sources can say where a task runs, and a Python RDD cannot be shuffled without
pickling each item. So:

* `SparkContext._jsc` and `SparkContext._jvm`: `ParallelCollectionRDD` with preferred locations (what Scala's `makeRDD`
  makes), and `zip` with it. A zipped partition runs where both sides prefer, and a shuffled or scanned one prefers
  nowhere (`spark.shuffle.reduceLocality.enabled=false`). `PairwiseRDD` and `PythonPartitioner` shuffle byte strings, as
  PySpark's own `partitionBy` does; `PythonUtils` makes Scala's collections.
* `RDD._jrdd`, `RDD._jrdd_deserializer`, `pyspark.core.rdd` and `pyspark.serializers`: items stay byte strings.
* `DataFrame._jdf`: `javaToPython`, as PySpark's own `DataFrame.rdd` does, to zip a scan with locations.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import pack
from typing import Any, NamedTuple

from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import BatchedSerializer, CPickleSerializer, NoOpSerializer, PairDeserializer
from pyspark.sql import DataFrame

from lavant.pipeline.cluster.assignment import ANYWHERE


class PlacedTask(NamedTuple):
    """What a task gets, and where it should run: a Spark location, or `ANYWHERE`.

    Spark waits for a busy executor (`spark.locality.wait.process`); if it is gone, another one runs the task.
    """

    location: str
    data: bytes


def run_tasks(
    context: SparkContext, tasks: Sequence[PlacedTask], work: Callable[[bytes], bytes], name: str
) -> list[bytes]:
    """Run `work` on each task; results in the order of the tasks."""

    def run(items: Iterable[Any]) -> Iterator[bytes]:
        return (work(bytes(item)) for item in items)

    with _named(context, name):
        return [bytes(each) for each in _bytes(_placed(context, tasks, 1), run).collect()]


def run_stages(
    context: SparkContext,
    first: Sequence[PlacedTask],
    split: Callable[[bytes], Sequence[bytes]],
    second: Sequence[PlacedTask],
    merge: Callable[[bytes, list[bytes]], bytes],
    names: tuple[str, str],
    *,
    one_by_one: bool = False,
) -> Iterator[bytes]:
    """Two stages with a shuffle between: `split` makes one byte string for each task of the second stage, and `merge`
    gets those of all first tasks. Results come in the order of the tasks; `one_by_one` keeps two of them in memory, and
    runs the second tasks one after the other.
    """

    def run_first(items: Iterable[Any]) -> Iterator[bytes]:
        for item in items:
            for place, part in enumerate(split(bytes(item))):
                yield pack("!q", place)
                yield part

    def run_second(pairs: Iterable[tuple[Any, Any]]) -> Iterator[bytes]:
        task, parts = b"", []
        for told, part in pairs:
            task = task or bytes(told)
            parts.append(part)
        yield merge(task, parts)

    with _named(context, names[0]):
        parts = _bytes(_placed(context, first, 1), run_first)
        shuffled = _shuffled(context, parts, len(second))
    with _named(context, names[1]):
        zipped = _placed(context, second, len(first))._jrdd.zip(shuffled)
        pairs = PairDeserializer(NoOpSerializer(), NoOpSerializer())  # type: ignore[no-untyped-call]
        merged = _bytes(RDD(zipped, context, pairs), run_second)
        results = merged.toLocalIterator(prefetchPartitions=True) if one_by_one else iter(merged.collect())
        return (bytes(each) for each in results)


def scan(rows: DataFrame, locations: Sequence[str], name: str) -> list[Any]:
    """The rows of a DataFrame with one row in each partition, which is read at a location."""
    context = rows.sparkSession.sparkContext
    with _named(context, name):
        pickled = rows._jdf.javaToPython()
        partitions = pickled.getNumPartitions()
        if not partitions:
            return []
        places = [locations[number] if number < len(locations) else ANYWHERE for number in range(partitions)]
        placed = _placed(context, [PlacedTask(place, b"") for place in places], 1)._jrdd
        batches = BatchedSerializer(CPickleSerializer())  # type: ignore[no-untyped-call]
        return list(RDD(placed.zip(pickled).values(), context, batches).collect())


def _placed(context: SparkContext, tasks: Sequence[PlacedTask], items: int) -> RDD[Any]:
    """A partition for each task: its data, and empty items up to the number that it will be zipped with."""
    jvm: Any = context._jvm
    scala: Any = context._jsc.sc()
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    data = [bytearray(task.data if not item else b"") for task in tasks for item in range(items)]
    locations = jvm.java.util.HashMap()
    for number, task in enumerate(tasks):
        if task.location != ANYWHERE:
            locations.put(number, to_seq([task.location]))
    preferred = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(locations)
    tag = context._jsc.emptyRDD().classTag()
    collection = jvm.org.apache.spark.rdd.ParallelCollectionRDD(scala, to_seq(data), len(tasks), preferred, tag)
    return RDD(collection.toJavaRDD(), context, NoOpSerializer())


def _bytes(rdd: RDD[Any], work: Callable[[Iterable[Any]], Iterator[bytes]]) -> RDD[Any]:
    """Map partitions to byte strings, which are not pickled."""
    mapped = rdd.mapPartitions(work)
    mapped._jrdd_deserializer = NoOpSerializer()
    return mapped


def _shuffled(context: SparkContext, keyed: RDD[Any], partitions: int) -> Any:
    """Items come in pairs: the number of a partition in 8 bytes, then a byte string for it."""
    python: Any = context._jvm.org.apache.spark.api.python  # type: ignore[union-attr]
    pairs = python.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    return pairs.partitionBy(python.PythonPartitioner(partitions, 0)).values()


class _named:  # noqa: N801 - used like a function
    """Names the job and its stages in Spark's web interface."""

    def __init__(self, context: SparkContext, name: str) -> None:
        self._context = context
        self._name = name

    def __enter__(self) -> None:
        self._context.setLocalProperty("callSite.short", self._name)

    def __exit__(self, *_: object) -> None:
        self._context.setLocalProperty("callSite.short", None)  # type: ignore[arg-type]
