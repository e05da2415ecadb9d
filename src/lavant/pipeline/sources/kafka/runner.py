"""A stream between topics from end to end, as `lavant stream` runs it.

work/
  subscriptions/      slice store, if the subscriptions came from a file
  topics.json         which topics and subscriptions this directory belongs to; written after the store
  checkpoint/         Spark's: how far the stream is
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lavant.broker.slices import SliceReader
from lavant.broker.storage.objects.files import StoredFile
from lavant.core.errors import UNDECODABLE, FailedStream, InvalidValue
from lavant.core.files import is_uri, local_path, replace_file
from lavant.core.identities import derived_identity
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.sources.kafka.stream import METRICS, match_topic
from lavant.pipeline.sources.kafka.topics import KafkaTopic, check_topics, without_secrets
from lavant.pipeline.stream.inputs import load_subscriptions
from lavant.pipeline.stream.preparation import all_or_nothing, digest

POLL_S = 0.2


class TopicStreamResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a stream that ended, or was stopped."""

    records: int
    """Read from the topic by this run."""
    notifications: int
    """Records written, with those of refused publications."""
    rejected: int
    subscriptions: int
    batches: int
    seconds: float
    output: str


class _Topics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names without brokers, which may move."""

    input: str
    output: str
    subscriptions: str
    scheme: str


def stream_topics(
    spark: SparkSession,
    *,
    subscriptions: str,
    input: KafkaTopic,
    output: KafkaTopic,
    work: Path,
    scheme: str = "plain",
    slices: int = 16,
    options: Mapping[str, str] | None = None,
    rejected_topic: str | None = None,
    available_now: bool = False,
    progress: Callable[[int], None] | None = None,
) -> TopicStreamResult:
    """Match a topic's records until the process is interrupted; with `available_now`, up to the topic's present end.

    Called again with the same work directory, it continues. `progress` is called with the number of records read.
    """
    given = dict(options or {})
    check_topics(input, output, rejected_topic, given)
    work = local_path(work).absolute()
    store = _prepare(subscriptions, work, input, output, scheme=scheme, slices=slices)
    started = time.monotonic()
    try:
        query = match_topic(
            spark,
            input,
            store,
            output,
            checkpoint=str(work / "checkpoint"),
            options=given,
            rejected_topic=rejected_topic,
            available_now=available_now,
        )
        counts = _wait(query, progress)
    except PySparkException as error:
        raise FailedStream(f"the stream stopped: {without_secrets(root_cause(error), given)}") from None
    return TopicStreamResult(
        records=sum(records for records, _, _ in counts.values()),
        notifications=sum(notifications for _, notifications, _ in counts.values()),
        rejected=sum(rejected for _, _, rejected in counts.values()),
        subscriptions=SliceReader(store).version().subscriptions,
        batches=len(counts),
        seconds=time.monotonic() - started,
        output=str(output),
    )


def _wait(query: StreamingQuery, progress: Callable[[int], None] | None) -> dict[int, tuple[int, int, int]]:
    """By batch: records read, notifications, refusals. An interrupt stops the query after its present batch."""
    counts: dict[int, tuple[int, int, int]] = {}
    with suppress(KeyboardInterrupt):
        while query.isActive:
            _count(query, counts)
            if progress is not None:
                progress(sum(records for records, _, _ in counts.values()))
            query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # seconds, and parts of them
    if query.isActive:
        query.stop()
    else:
        query.awaitTermination()
    _count(query, counts)
    return counts


def _count(query: StreamingQuery, counts: dict[int, tuple[int, int, int]]) -> None:
    for each in query.recentProgress:
        observed = each["observedMetrics"].get(METRICS)
        if each["numInputRows"] and observed is not None:
            counts[each["batchId"]] = (each["numInputRows"], observed["notifications"], observed["rejected"])


def _prepare(subscriptions: str, work: Path, input: KafkaTopic, output: KafkaTopic, *, scheme: str, slices: int) -> str:
    """The slice store: the one given, or one made of the file given. A refusal changes nothing."""
    if is_uri(subscriptions) or (local_path(subscriptions) / "store.json").exists():
        given, content = SliceReader(subscriptions), None
        store, identity, scheme = given.address, given.identity, given.settings.scheme
    else:
        content = local_path(subscriptions)
        store, identity = str(work / "subscriptions"), derived_identity(digest(StoredFile.at(content)))
    wanted = _Topics(input.name, output.name, identity, scheme)
    known = work / "topics.json"
    if known.exists():
        _check(known, wanted)
        return store
    if (work / "checkpoint").exists() or (work / "inputs.json").exists():
        raise InvalidValue(f"{work} belongs to another stream; choose another work directory")
    with all_or_nothing(work, ["topics.json"] if content is None else ["subscriptions", "topics.json"]):
        if content is not None:
            load_subscriptions(content, Path(store), scheme=scheme, slices=slices)
        replace_file(known, [msgspec.json.encode(wanted)])
    return store


def _check(known: Path, wanted: _Topics) -> None:
    try:
        found = msgspec.json.decode(known.read_bytes(), type=_Topics)
    except UNDECODABLE as error:
        raise InvalidValue(f"{known} is damaged: {error}; choose another work directory") from None
    for field in _Topics.__struct_fields__:
        was, now = getattr(found, field), getattr(wanted, field)
        if was != now:
            raise InvalidValue(
                f"{known.parent} belongs to another stream: its {field} was {was}, now it is {now}; "
                "choose another work directory"
            )
