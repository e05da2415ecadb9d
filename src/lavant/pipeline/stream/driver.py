"""A stream from end to end: publications from files or a log, matched against subscriptions, into notifications.

output/
  notifications/      `read_notifications` or any reader of Parquet
  rejected.jsonl      publications that were refused, with the reason
  work/               subscriptions in slices, the publication log, Spark's checkpoint
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lavant.broker.slices import SliceReader
from lavant.broker.storage.log import LogReader
from lavant.core.errors import FailedStream, IdentityMismatch
from lavant.core.files import local_path
from lavant.core.identities import is_other
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.internals.checkpoints import BatchOffsets, batch_offsets, last_planned
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.internals.host_tasks import run_on_hosts
from lavant.pipeline.sources.log import LogSource
from lavant.pipeline.stream.exchange import count_reasons
from lavant.pipeline.stream.preparation import prepare, remove_tree
from lavant.pipeline.stream.sinks import Notifications, SinkOrigin, read_manifests, read_reasons
from lavant.pipeline.stream.stages import HostTask, match_host


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Locations of all files; directories that all hosts reach under the same name."""

    log: Path
    store: Path
    store_identity: str
    exchange: Path
    checkpoint: Path
    notifications: Notifications
    hosts: int
    placement: Path | None = None
    """A file that the manager replaces; without it slices are spread evenly over `hosts`."""
    probes: Path | None = None
    starting_offset: int = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        offsets = batch_offsets(self.checkpoint, number, self.starting_offset)
        origin = SinkOrigin(offsets.log, self.store_identity)
        if self.notifications.is_done(number, offsets.start, origin):
            return
        found = run_on_hosts(batch.sparkSession.sparkContext, self._tasks(offsets), match_host)
        self.notifications.write(number, offsets.start, [self.exchange / name for name in found], origin)

    def _tasks(self, offsets: BatchOffsets) -> list[tuple[str, bytes]]:
        """Access (AP): every host gets the whole offset range, for its own slices."""
        store = SliceReader(self.store, self.store_identity)
        version = store.version().number
        assignment = self._assignment(store.settings.slices)
        assignment.check(store.settings.slices, store.identity)
        tasks = (
            HostTask(
                log=str(self.log),
                log_identity=offsets.log,
                store=str(self.store),
                store_identity=self.store_identity,
                version=version,
                host=host,
                slices=slices,
                start=offsets.start,
                end=offsets.end,
                exchange=str(self.exchange),
                probes=None if self.probes is None else str(self.probes),
            )
            for host, slices in enumerate(assignment.hosts)
        )
        return [(assignment.location(task.host), msgspec.msgpack.encode(task)) for task in tasks]

    def _assignment(self, slices: int) -> SliceAssignment:
        if self.placement is None:
            return SliceAssignment.even(slices, self.hosts)
        return msgspec.json.decode(self.placement.read_bytes(), type=SliceAssignment)


SLICES = 16
POLL_S = 0.1

Progress = Callable[[int, int], None]
"""Called with the number of publications done and in total."""


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


def stream(
    spark: SparkSession,
    *,
    subscriptions: Path,
    publications: Path,
    output: Path,
    scheme: str = "plain",
    slices: int = SLICES,
    hosts: int | None = None,
    progress: Progress | None = None,
) -> StreamResult:
    """Match all publications of a file, a directory of files or a log; returns when all are notified.

    Called again with the same output after a failure, it resumes.
    """
    subscriptions, publications, output = map(local_path, (subscriptions, publications, output))
    prepared = prepare(subscriptions, publications, output, scheme=scheme, slices=slices)
    end = LogReader(prepared.log).end()
    started = time.monotonic()
    query = start(spark, log=prepared.log, subscriptions=prepared.store, output=output, hosts=hosts, available_now=True)
    wait(query, end, progress)
    notifications = output / "notifications"
    refused = read_reasons(notifications)
    return StreamResult(
        publications=end,
        rejected=len(prepared.refused) + len(refused),
        reasons=count_reasons([*prepared.refused, *refused]),
        matched_none=0 < end == len(refused),
        subscriptions=SliceReader(prepared.store).version().subscriptions,
        batches=len(read_manifests(notifications)),
        seconds=time.monotonic() - started,
        notifications=str(notifications),
    )


def start(
    spark: SparkSession,
    *,
    log: Path,
    subscriptions: Path,
    output: Path,
    hosts: int | None = None,
    available_now: bool = False,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start the query: notifications and checkpoint below `output`.

    `options` are those of `LogSource`, and `placement` and `probes` from the manager.
    """
    log, subscriptions, output = map(local_path, (log, subscriptions, output))
    given = dict(options or {})
    work = (output / "work").absolute()
    store = SliceReader(subscriptions)
    _refuse_other_log(log, work / "checkpoint")
    notifications = Notifications((output / "notifications").absolute())
    notifications.check(SinkOrigin(LogReader(log).identity, store.identity))
    remove_tree(work / "exchange")  # left by a batch that was killed
    placement, probes = given.pop("placement", None), given.pop("probes", None)
    batch = MicroBatch(
        log=log.absolute(),
        store=subscriptions.absolute(),
        store_identity=store.identity,
        exchange=work / "exchange",
        checkpoint=work / "checkpoint",
        notifications=notifications,
        hosts=hosts if hosts is not None else max(1, spark.sparkContext.defaultParallelism),
        placement=None if placement is None else Path(placement),
        probes=None if probes is None else Path(probes),
        starting_offset=int(given.get("startingOffset", "0")),
    )
    spark.dataSource.register(LogSource)
    source = spark.readStream.format(LogSource.name()).options(**given).load(str(batch.log))
    writer = source.writeStream.foreachBatch(batch).option("checkpointLocation", str(batch.checkpoint))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _refuse_other_log(log: Path, checkpoint: Path) -> None:
    """A checkpoint belongs to one log; in another its offsets would skip some publications and repeat others."""
    last = last_planned(checkpoint)
    if last is None:
        return
    reader = LogReader(log)
    if is_other(last.log, reader.identity):
        raise IdentityMismatch(
            f"{checkpoint} belongs to another log: its identity was {last.log}, that of {log} is "
            f"{reader.identity}; choose another output directory, or put the original log back"
        )
    if last.offset > reader.end():
        raise IdentityMismatch(
            f"{checkpoint} is at offset {last.offset}, but {log} ends at {reader.end()}: it is another log, or "
            "has lost its end; choose another output directory, or put the original log back"
        )


def wait(query: StreamingQuery, end: int, progress: Progress | None = None) -> None:
    """Wait for a query that ends by itself, and report its progress."""
    try:
        while query.isActive:
            if progress is not None:
                progress(min(offset_of(query), end), end)
            query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # seconds, and parts of them
        query.awaitTermination()
    except StreamingQueryException as error:
        raise FailedStream(f"the stream stopped: {root_cause(error)}") from error
    if progress is not None:
        progress(end, end)


def offset_of(query: StreamingQuery) -> int:
    """The position of the query in the log."""
    latest = query.lastProgress
    if latest is None:
        return 0
    offset = latest["sources"][0]["endOffset"]
    return int(msgspec.json.decode(offset)["offset"] if isinstance(offset, str) else offset["offset"])
