"""A stream from end to end: publications from files or a log, matched against subscriptions, into notifications.

output/
  notifications/      `read_notifications` or any reader of Parquet
  rejected.jsonl      publications that were refused, with the reason
  work/               subscriptions in slices and the publication log, if they came from files
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from lavant.broker.slices import SliceReader
from lavant.broker.storage.log import LogReader
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import FailedStream, InvalidValue
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.cluster.manager import ClusterManager
from lavant.pipeline.cluster.probes import ProbeBuffer
from lavant.pipeline.internals.checkpoints import checkpoint_uri
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.operators.travel import SliceTravel
from lavant.pipeline.session import lean_plans
from lavant.pipeline.sources.options import count_option
from lavant.pipeline.stream.batches import Batches
from lavant.pipeline.stream.block_source import BlockSource
from lavant.pipeline.stream.log_ranges import ADDRESS_BYTES_MAX
from lavant.pipeline.stream.preparation import prepare
from lavant.pipeline.stream.sinks import Notifications, SinkOrigin, count_reasons, read_manifests, read_reasons
from lavant.pipeline.stream.small_batches import SMALL_ROWS_MAX

SLICES = 16
POLL_S = 0.1

Progress = Callable[[int, int], None]
"""Called with the number of publications done and in total."""
Place = str | Path


class StreamResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a finished stream."""

    publications: int
    """In the log."""
    rejected: int
    """Refused: of the input, and of those in the log."""
    reasons: dict[str, int]
    """Count by reason."""
    matched_none: bool
    """There were publications, and all of them were refused."""
    subscriptions: int
    batches: int
    seconds: float
    notifications: str


class RunningStream:
    """A stream that was started. `query` is Spark's."""

    def __init__(
        self, query: StreamingQuery, log: LogReader, batches: Batches, notifications: Notifications, home: Path
    ) -> None:
        self.query = query
        self._log = log
        self._batches = batches
        self._notifications = notifications
        self._home = home
        batches.on_failed = lambda: threading.Thread(target=query.stop, name="lavant-stop", daemon=True).start()

    @property
    def is_active(self) -> bool:
        return self.query.isActive

    @property
    def position(self) -> int:
        """The offset up to which publications are notified."""
        return self._notifications.next_offset or 0

    def wait(self, end: int | None = None, progress: Progress | None = None) -> None:
        """Wait until the query ends, and its last batches are notified; raises if it failed.

        `progress` is called with the position and `end`.
        """
        try:
            while self.query.isActive:
                self._show(end, progress)
                self.query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # seconds, and parts of them
            self.query.awaitTermination()
        except StreamingQueryException as error:
            self._finish()
            raise FailedStream(f"the stream stopped: {root_cause(error)}") from error
        self._finish()
        self._show(end, progress)

    def process_all_available(self) -> None:
        """Wait until everything that is in the log now is notified."""
        end = self._log.end()
        self.query.processAllAvailable()
        while self.query.isActive and self.position < end:
            time.sleep(POLL_S)
        if self.position < end:
            self.wait()  # which raises, if the stream has failed

    def stop(self) -> None:
        """End the query; batches on their way are finished first."""
        self._batches.stop()
        self.query.stop()
        self._finish()

    def _finish(self) -> None:
        try:
            self._batches.drain()
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    def _show(self, end: int | None, progress: Progress | None) -> None:
        if progress is not None and end is not None:
            progress(min(self.position, end), end)


def stream(
    spark: SparkSession,
    *,
    subscriptions: str | Path,
    publications: str | Path,
    output: str | Path,
    scheme: str = "plain",
    slices: int = SLICES,
    hosts: int | None = None,
    progress: Progress | None = None,
) -> StreamResult:
    """Match all publications of a file, a directory of files or a log; returns when all are notified.

    Called again with the same output after a failure, it resumes.
    """
    prepared = prepare(subscriptions, publications, output, scheme=scheme, slices=slices)
    end = LogReader(prepared.log).end()
    began = time.monotonic()
    running = start(
        spark, log=prepared.log, subscriptions=prepared.store, output=output, hosts=hosts, available_now=True
    )
    running.wait(end, progress)
    notifications = open_storage(output).below("notifications")
    refused = read_reasons(notifications)
    return StreamResult(
        publications=end,
        rejected=len(prepared.refused) + len(refused),
        reasons=count_reasons([*prepared.refused, *refused]),
        matched_none=0 < end == len(refused),
        subscriptions=SliceReader(prepared.store).version().subscriptions,
        batches=len(read_manifests(notifications)),
        seconds=time.monotonic() - began,
        notifications=notifications.uri,
    )


def start(
    spark: SparkSession,
    *,
    log: Place,
    subscriptions: Place,
    output: Place,
    hosts: int | None = None,
    available_now: bool = False,
    shared: bool = False,
    manager: ClusterManager | None = None,
    probes: ProbeBuffer | None = None,
    small_rows_max: int = SMALL_ROWS_MAX,
    options: Mapping[str, str] | None = None,
) -> RunningStream:
    """Start the query, after the last batch in `output` if there is one.

    `options` are `rowsMax` and `startingOffset` of the source `lavant_log`. A `manager` places the slices; without one
    they are spread evenly over `hosts`. Measurements of tasks go to the manager, or to `probes`. Executors read and
    write what is at a URI; what is at a local path travels through Spark, unless Spark is local, or `shared` says that
    all machines have the same files under the same paths. Batches of at most `small_rows_max` publications take the
    shorter way. Where tasks can open the subscriptions, and `rowsMax` is not given, batches grow with what waits (see
    `small_batches`).
    """
    given = _source_options(options or {})
    context = spark.sparkContext
    store = SliceReader(subscriptions)
    reader = LogReader(log)
    notifications = Notifications(open_storage(output).below("notifications"))
    notifications.check(SinkOrigin(reader.identity, store.identity), reader.end())
    reaches = partial(_reaches, context, shared)
    travel = SliceTravel(context, shared=reaches(store.storage))
    if manager is not None:
        manager.attach(travel, lambda: notifications.next_batch)
    even = hosts if hosts is not None else max(1, context.defaultParallelism)
    # The manifests say how far the stream is, so Spark's own record is good for one run only.
    home = Path(tempfile.mkdtemp(prefix="lavant-stream-"))
    plan = home / "batches"
    follows = (
        str(context.master).startswith("local")
        and manager is None
        and not available_now
        and "rowsMax" not in given
        and open_storage(log).path("any") is not None
        and len(bytes(plan)) <= ADDRESS_BYTES_MAX
    )
    batches = Batches(
        context,
        store=store,
        travel=travel,
        notifications=notifications,
        output=notifications.storage.address if reaches(notifications.storage) else None,
        placement=(lambda slices: SliceAssignment.even(slices, even)) if manager is None else manager.assignment,
        plan=plan,
        small_rows_max=small_rows_max,
        probes=probes if manager is None else manager.probes,
        followed=LogReader(log, reader.identity) if follows else None,
    )
    if notifications.next_offset is not None:
        given["startingOffset"] = str(notifications.next_offset)
    given |= {
        "scheme": store.settings.scheme,
        "plan": str(plan),
        "travel": "false" if reaches(open_storage(log)) else "true",
    }
    try:
        writer = _blocks(spark, log, given).writeStream.queryName(_query_name(notifications)).foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint_uri(context, home / "checkpoint"))
        with lean_plans(spark):
            query = (writer.trigger(availableNow=True) if available_now else writer).start()
    except BaseException:
        batches.drain()
        shutil.rmtree(home, ignore_errors=True)
        raise
    return RunningStream(query, reader, batches, notifications, home)


def _source_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their own names, which Spark takes in any case; others would do nothing, and are refused."""
    least = {"rowsMax": 1, "startingOffset": 0}
    names = {name.lower(): name for name in least}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() not in names:
            raise InvalidValue(f"a stream has the options {' and '.join(least)}, got {name!r}")
        given[names[name.lower()]] = str(value)
    for name in given:
        count_option(given, name, least[name])
    return given


def _blocks(spark: SparkSession, log: Place, options: Mapping[str, str]) -> DataFrame:
    """The blocks of the log. Only the rows with a block go on; Spark has counted all of them by then."""
    spark.dataSource.register(BlockSource)
    source = spark.readStream.format(BlockSource.name()).options(**options)
    blocks = source.load(open_storage(log).address).where("block is not null")
    measured = blocks.observe(
        "lavant_access", sf.sum("publications").alias("publications"), sf.sum(sf.length("block")).alias("bytes")
    )
    return measured.select("block")


def _reaches(context: SparkContext, shared: bool, storage: ObjectStorage) -> bool:
    """Whether tasks can open a storage themselves."""
    return shared or str(context.master).startswith("local") or storage.path("any") is None


def _query_name(notifications: Notifications) -> str:
    return f"lavant {notifications.storage.uri}"
