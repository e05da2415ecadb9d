"""Stages of placed tasks: a Spark job whose tasks have preferred locations on both sides of a shuffle.

Neither Spark's SQL nor its Python sources can say where a task runs, and a Python RDD cannot be shuffled without
pickling each item. So:

* `SparkContext._jsc` and `SparkContext._jvm`: `ParallelCollectionRDD` with preferred locations (what Scala's `makeRDD`
  makes), and `zip` with it. A zipped partition runs where both sides prefer, and a shuffled or scanned one prefers
  nowhere (`spark.shuffle.reduceLocality.enabled=false`). `PairwiseRDD` and `PythonPartitioner` shuffle byte strings, as
  PySpark's own `partitionBy` does; `PythonUtils` makes Scala's collections.
* `RDD._jrdd`, `RDD._jrdd_deserializer`, `pyspark.core.rdd` and `pyspark.serializers`: items stay byte strings.
* `DataFrame._jdf`: `toArrowBatchRdd`, of which PySpark's own `DataFrame.toArrow` is made, to zip a scan with locations.
  Pickled, as `DataFrame.rdd` has them, byte strings become text and bytes again.
* `pyspark.util._load_from_socket` and `PythonRDD.serveIterator`, of which PySpark's own `RDD.collect` is made: they
  bring what `collectAsync` returns from Java to Python.
* `pyspark.traceback_utils.SCCallSiteSync`: within it, PySpark's own calls do not replace the name of a stage by theirs.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import pack
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.traceback_utils import SCCallSiteSync
from pyspark.util import _load_from_socket

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
    data = [task.data for task in tasks]

    def run(number: int, items: Iterable[Any]) -> Iterator[bytes]:
        deque(items, 0)  # a worker that leaves something unread is not used again
        yield work(data[number])

    with _named(context, name):
        return _collected(context, _mapped(context, _places(context, _locations(tasks), 1), run)._jrdd)


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
    splitting, merging = [task.data for task in first], [task.data for task in second]

    def run_first(number: int, items: Iterable[Any]) -> Iterator[bytes]:
        deque(items, 0)
        for place, part in enumerate(split(splitting[number])):
            yield pack("!q", place)
            yield part

    def run_second(number: int, parts: Iterable[Any]) -> Iterator[bytes]:
        yield merge(merging[number], list(parts))

    with _named(context, names[0]):
        parts = _mapped(context, _places(context, _locations(first), 1), run_first)
        shuffled = _shuffled(context, parts, len(second))
    with _named(context, names[1]):
        merged = _mapped(context, _placed(context, shuffled, _locations(second), len(first)), run_second)
        if not one_by_one:
            return iter(_collected(context, merged._jrdd))
        return (bytes(each) for each in merged.toLocalIterator(prefetchPartitions=True))


def scan(rows: DataFrame, locations: Sequence[str], name: str) -> list[bytes]:
    """The only column, of byte strings, of a DataFrame with at most one row in each partition, read at a location."""
    context = rows.sparkSession.sparkContext
    with _named(context, name):
        batches = rows._jdf.toArrowBatchRdd().toJavaRDD()
        if any(location != ANYWHERE for location in locations) and (partitions := batches.getNumPartitions()):
            places = tuple(locations[number] if number < len(locations) else ANYWHERE for number in range(partitions))
            batches = _placed(context, batches, places, 1)
        found = _collected(context, batches)
    column = pa.schema([(rows.columns[0], pa.binary())])
    return [each for batch in found for each in pa.ipc.read_record_batch(pa.py_buffer(batch), column)[0].to_pylist()]


def _collected(context: SparkContext, jrdd: Any) -> list[bytes]:
    """What `collect` returns. Of Java's ways to run a job, `collectAsync` is the one that reads no large class of
    Spark's to check the closure of the job, which takes longer than to plan it.
    """
    java = _java(context)
    items = java.to_seq(jrdd.collectAsync().get()).iterator()
    with _load_from_socket(java.serve(items, "lavant results"), NoOpSerializer()) as stream:
        return list(stream)


def _locations(tasks: Sequence[PlacedTask]) -> tuple[str, ...]:
    return tuple(task.location for task in tasks)


def _placed(context: SparkContext, jrdd: Any, locations: tuple[str, ...], items: int) -> Any:
    """The same partitions, of so many items each, at these locations."""
    if all(location == ANYWHERE for location in locations):
        return jrdd
    return _places(context, locations, items).zip(jrdd).values()


@lru_cache(maxsize=64)
def _places(context: SparkContext, locations: tuple[str, ...], items: int) -> Any:
    """Partitions of so many empty items, each at its location; made once, since each call into Java takes time."""
    java = _java(context)
    preferred = java.hash_map()
    for number, location in enumerate(locations):
        if location != ANYWHERE:
            preferred.put(number, java.to_seq([location]))
    data = java.to_seq([bytearray()] * (items * len(locations)))
    collection = java.collection(java.scala, data, len(locations), java.to_scala_map(preferred), java.tag)
    return collection.toJavaRDD()


def _mapped(context: SparkContext, jrdd: Any, work: Callable[[int, Iterable[Any]], Iterator[bytes]]) -> RDD[Any]:
    """Map partitions of byte strings to byte strings, which are not pickled."""
    mapped = RDD(jrdd, context, NoOpSerializer()).mapPartitionsWithIndex(work)
    mapped._jrdd_deserializer = NoOpSerializer()
    return mapped


def _shuffled(context: SparkContext, keyed: RDD[Any], partitions: int) -> Any:
    """Items come in pairs: the number of a partition in 8 bytes, then a byte string for it."""
    java = _java(context)
    pairs = java.pairwise(keyed._jrdd.rdd()).asJavaPairRDD()
    return pairs.partitionBy(java.partitioner(partitions, 0)).values()


class _Java(NamedTuple):
    """Java's classes and functions; looking one up by its name takes a call for each part of the name."""

    scala: Any
    tag: Any
    to_seq: Any
    to_scala_map: Any
    hash_map: Any
    collection: Any
    pairwise: Any
    partitioner: Any
    serve: Any


@lru_cache(maxsize=4)
def _java(context: SparkContext) -> _Java:
    jvm: Any = context._jvm
    python = jvm.org.apache.spark.api.python
    return _Java(
        context._jsc.sc(),
        context._jsc.emptyRDD().classTag(),
        python.PythonUtils.toSeq,
        python.PythonUtils.toScalaMap,
        jvm.java.util.HashMap,
        jvm.org.apache.spark.rdd.ParallelCollectionRDD,
        python.PairwiseRDD,
        python.PythonPartitioner,
        python.PythonRDD.serveIterator,
    )


class _named:  # noqa: N801 - used like a function
    """Names the job and its stages in Spark's web interface."""

    def __init__(self, context: SparkContext, name: str) -> None:
        self._context = context
        self._name = name
        self._call = SCCallSiteSync(context)  # type: ignore[no-untyped-call]

    def __enter__(self) -> None:
        self._call.__enter__()  # type: ignore[no-untyped-call]
        self._context.setLocalProperty("callSite.short", self._name)

    def __exit__(self, *error: Any) -> None:
        self._context.setLocalProperty("callSite.short", None)  # type: ignore[arg-type]
        self._call.__exit__(*error)  # type: ignore[no-untyped-call]
