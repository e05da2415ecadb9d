"""A stream from end to end: publications of files or of a log, against subscriptions, into notifications.

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
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lavant.broker.log import LogReader, LogWriter
from lavant.broker.slices import SliceReader
from lavant.core.errors import FailedStream, IdentityMismatch, InvalidValue
from lavant.core.files import replace_file
from lavant.core.identities import is_other
from lavant.core.publications import Rejected
from lavant.pipeline.checkpoints import last_planned
from lavant.pipeline.failures import root_cause
from lavant.pipeline.inputs import load_publications, load_subscriptions
from lavant.pipeline.microbatch import MicroBatch
from lavant.pipeline.sinks import Notifications, Origin
from lavant.pipeline.sources import LogSource

SLICES = 16
POLL_S = 0.1

Progress = Callable[[int, int], None]
"""Called with the publications done and those there are."""


class StreamResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished stream did."""

    publications: int
    rejected: int
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

    Called again with the same output after a failure, it goes on where it was.
    """
    work = output / "work"
    _refuse_other_inputs(work, Inputs(_described(subscriptions), _described(publications), scheme, slices))
    store = _subscriptions(subscriptions, work, scheme, slices)
    log, rejected = _publications(publications, work, scheme, output)
    end = LogReader(log).end()
    started = time.monotonic()
    query = start(spark, log=log, subscriptions=store, output=output, hosts=hosts, available_now=True)
    wait(query, end, progress)
    batches = len(list((output / "notifications").glob("batch-*.json")))
    return StreamResult(
        publications=end,
        rejected=rejected,
        subscriptions=_count(store),
        batches=batches,
        seconds=time.monotonic() - started,
        notifications=str(output / "notifications"),
    )


class Inputs(msgspec.Struct, frozen=True):
    """What an output directory is made from: paths with sizes and times, and how they are read."""

    subscriptions: tuple[str, int, int]
    publications: tuple[str, int, int]
    scheme: str
    slices: int


def _described(path: Path) -> tuple[str, int, int]:
    if not path.exists():
        raise InvalidValue(f"there is no file {path}")
    if path.is_dir():  # a store or a log may grow meanwhile
        return str(path.absolute()), 0, 0
    return str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns


def _refuse_other_inputs(work: Path, inputs: Inputs) -> None:
    """An output directory goes on with what it was started with; anything else would be silently ignored."""
    known = work / "inputs.json"
    if known.exists():
        if msgspec.json.decode(known.read_bytes(), type=Inputs) != inputs:
            raise InvalidValue(
                f"{work.parent} holds the results of other inputs (see {known}); choose another output directory"
            )
        return
    work.mkdir(parents=True, exist_ok=True)
    replace_file(known, [msgspec.json.encode(inputs)])


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

    `options` are those of `LogSource`, and `placement` and `probes` as the manager gives them.
    """
    given = dict(options or {})
    work = (output / "work").absolute()
    store = SliceReader(subscriptions)
    _refuse_other_log(log, work / "checkpoint")
    notifications = Notifications((output / "notifications").absolute())
    notifications.check(Origin(LogReader(log).identity, store.identity))
    _remove_tree(work / "exchange")  # what a batch left that was killed
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
    source = spark.readStream.format(LogSource.name()).option("log", str(batch.log)).options(**given).load()
    writer = source.writeStream.foreachBatch(batch).option("checkpointLocation", str(batch.checkpoint))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _refuse_other_log(log: Path, checkpoint: Path) -> None:
    """A checkpoint is of one log; in another its offsets would skip some publications and repeat others."""
    last = last_planned(checkpoint)
    if last is None:
        return
    reader = LogReader(log)
    if is_other(last.log, reader.identity):
        raise IdentityMismatch(
            f"{checkpoint} is of another log: its identity was {last.log}, that of {log} is {reader.identity}; "
            "choose another output directory, or put the log back that was there"
        )
    if last.offset > reader.end():
        raise IdentityMismatch(
            f"{checkpoint} has come to offset {last.offset}, and {log} ends at {reader.end()}: it is another log, or "
            "has lost its end; choose another output directory, or put the log back that was there"
        )


def wait(query: StreamingQuery, end: int, progress: Progress | None = None) -> None:
    """Wait for a query that ends by itself, and tell how far it is."""
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
    """How far the query has come in the log."""
    latest = query.lastProgress
    if latest is None:
        return 0
    offset = latest["sources"][0]["endOffset"]
    return int(msgspec.json.decode(offset)["offset"] if isinstance(offset, str) else offset["offset"])


def _subscriptions(path: Path, work: Path, scheme: str, slices: int) -> Path:
    if (path / "store.json").exists():
        return path
    store = work / "subscriptions"
    if not (store / "complete").exists():
        _remove_tree(store)
        load_subscriptions(path, store, scheme=scheme, slices=slices)
        (store / "complete").touch()
    return store


def _publications(path: Path, work: Path, scheme: str, output: Path) -> tuple[Path, int]:
    if path.is_dir() and any(path.glob("*.log")):
        return path, 0
    log = work / "log"
    refused = output / "rejected.jsonl"
    if not refused.exists():
        _remove_tree(log)
        with LogWriter(log, durable=False) as writer:
            rejected = load_publications(path, writer, scheme=scheme)
        _write_rejected(refused, rejected)
    return log, len(refused.read_bytes().splitlines())


def _write_rejected(path: Path, rejected: list[Rejected]) -> None:
    lines = [msgspec.json.encode(each._asdict()) + b"\n" for each in rejected]
    replace_file(path, lines)


def _count(store: Path) -> int:
    return SliceReader(store).version().subscriptions


def _remove_tree(directory: Path) -> None:
    """What an earlier try left unfinished."""
    if not directory.exists():
        return
    if directory.is_symlink():
        raise InvalidValue(f"{directory} is a link; give an output directory of its own")
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
