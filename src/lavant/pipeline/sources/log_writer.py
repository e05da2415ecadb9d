"""`lavant_log` as a sink: appends the rows of a table, or of each micro-batch, to a publication log.

A log has one writer, which is the driver. Tasks turn their rows into blocks and stage them beside the log; if they
cannot reach it, they return them with their result. The commit appends all of them, in the order of the partitions:

    log/writes/
      staged/JOB/00003-17-00000.blocks     blocks of partition 3, by task attempt 17
      pending.json                         the write that is being appended: where it starts, and its staged parts
      done/QUERY.json                      the last batch of a streaming query that was appended

`pending.json` is written before the first append and removed after the last. If the driver dies in between, the next
write completes the append from the staged parts, so a write is in the log as a whole or not at all, and a repeated
batch of a stream, known by the number in `done`, is not appended again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lavant.broker.storage.disks.locks import lock_directory
from lavant.broker.storage.log import LogWriter
from lavant.broker.storage.log.identity import keep_identity, log_identity
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, InvalidValue, LimitExceeded, StorageLocked
from lavant.core.identities import new_identity
from lavant.core.publications.columns import columns_of_rows
from lavant.core.publications.json_lines import publication_row
from lavant.core.publications.publication import POINT
from lavant.pipeline.internals.query_identity import task_query_id
from lavant.pipeline.internals.worker_errors import with_refusals_in_one_line
from lavant.pipeline.sources.log_rows import OFFSET, PUBLICATION
from lavant.pipeline.sources.options import place_of
from lavant.pipeline.stream.records import accept

FILE_BYTES_MAX = 32 << 20
"""Of a log's file: each commit reads the last one, to recover from a crash."""
PART_BYTES = 16 << 20
"""A task stages its blocks when it has so many bytes of them."""
RETURNED_BYTES_MAX = 64 << 20
"""What a task may return to the driver if it does not reach the log."""
PENDING = "pending.json"
SUPPORTED = "string, boolean, byte, short, int, bigint, float and double, @payload binary, @point array<double>"
_TYPES = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double"})
_ENVELOPE = {"@payload": "binary", POINT: "array<double>"}
_LOG_TYPES = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""Types that Spark has by `spark.sql.execution.arrow.useLargeVarTypes`, and those of a log."""


@dataclass(frozen=True)
class StagedBlocks(WriterCommitMessage):
    """What a task made of its rows: names of staged parts, or one part itself."""

    rows: int
    job: str
    names: tuple[str, ...] = ()
    content: bytes | None = None


class PendingWrite(msgspec.Struct, frozen=True):
    """The write that is being appended."""

    start: int
    """Offset of its first publication."""
    rows: int
    parts: tuple[str, ...]
    job: str
    """Of a batch of a streaming query, the query's identity."""
    batch: int | None = None


class _DoneBatch(msgspec.Struct, frozen=True):
    batch: int
    end: int


class RowSettings(NamedTuple):
    """How a task turns rows into publications."""

    is_json: bool
    drops: bool
    """Whether rows that are no publications are left out, instead of failing the write."""
    offset: str


class LogTaskWriter:
    """The part of both writers that runs in tasks, and the commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, source: str) -> None:
        if overwrite:
            raise InvalidValue("a log is only appended to; use mode append")
        self.place = place_of(options, source)
        self.settings = _row_settings(options, schema)
        self.identity = keep_identity(open_storage(self.place), None)
        self.job = new_identity()

    def stage(self, batches: Iterator[pa.RecordBatch], job: str) -> StagedBlocks:
        """In a task: its rows as blocks, staged if the log can be reached."""
        reaches = log_identity(self.place) == self.identity
        names: list[str] = []
        streams: list[bytes] = []
        rows = size = 0
        for batch in batches:
            records = publications_of(self.settings, batch)
            if not records.num_rows:
                continue
            rows += records.num_rows
            streams.append(_to_stream(records))
            size += len(streams[-1])
            if reaches and size >= PART_BYTES:
                names.append(self._write_part(job, len(names), streams))
                streams, size = [], 0
            if not reaches and size > RETURNED_BYTES_MAX:
                raise LimitExceeded(
                    f"a task has more than {RETURNED_BYTES_MAX} bytes of publications, and does not reach the log; "
                    "repartition the table, or give a URI that executors reach"
                )
        if not streams:
            return StagedBlocks(rows, job, tuple(names))
        if not reaches:
            return StagedBlocks(rows, job, content=msgspec.msgpack.encode(streams))
        return StagedBlocks(rows, job, (*names, self._write_part(job, len(names), streams)))

    def _write_part(self, job: str, part: int, streams: list[bytes]) -> str:
        context = TaskContext.get()
        number, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        name = f"staged/{job}/{number:05d}-{attempt}-{part:05d}.blocks"
        _writes(self.place).write(name, [msgspec.msgpack.encode(streams)])
        return name

    def commit(self, messages: list[WriterCommitMessage | None], batch: int | None = None) -> None:
        """In the driver: append what the tasks staged, unless that was done before."""
        staged = [each for each in messages if isinstance(each, StagedBlocks) and each.rows]
        if not staged:
            return
        job, storage = staged[0].job, _writes(self.place)
        opened = partial(LogWriter, self.place, file_bytes_max=FILE_BYTES_MAX, identity=self.identity)
        with _only_writer(self.place), opened() as log:
            finish(storage, log)
            if batch is not None and _is_done(storage, job, batch):
                _remove_staged(storage, job)
                return
            parts = tuple(name for number, each in enumerate(staged) for name in _names(storage, each, number))
            write = PendingWrite(log.end, sum(each.rows for each in staged), parts, job, batch)
            if not storage.create(PENDING, [msgspec.json.encode(write)]):
                raise StorageLocked(f"another process writes the log {storage.uri} too; a log has one writer")
            finish(storage, log)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        storage = _writes(self.place)
        for each in messages:
            for name in each.names if isinstance(each, StagedBlocks) else ():
                storage.remove(name)


@with_refusals_in_one_line
class LogBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, source: str) -> None:
        self._writer = LogTaskWriter(options, schema, overwrite, source)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBlocks:
        return self._writer.stage(iterator, self._writer.job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark knows the messages of finished tasks only; others of this job may have staged parts too.
        _remove_staged(_writes(self._writer.place), self._writer.job)


@with_refusals_in_one_line
class LogStreamWriter(DataSourceStreamArrowWriter):
    """A batch is known by its number and the query's identity, which tasks know."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, source: str) -> None:
        self._writer = LogTaskWriter(options, schema, overwrite, source)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBlocks:
        query = task_query_id()
        if query is None:
            raise InvalidValue("Spark does not say which query this is, so a repeated batch could not be told apart")
        return self._writer.stage(iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._writer.abort(messages)


def finish(storage: ObjectStorage, log: LogWriter) -> None:
    """Append what is left of the pending write, if there is one. It can be repeated, wherever it was interrupted."""
    write = _read(storage, PENDING, PendingWrite)
    if write is None:
        return
    offset = write.start
    for records in _blocks(storage, write):
        if offset == log.end:
            log.append(records)
        offset += records.num_rows
    if log.end != offset or offset != write.start + write.rows:
        raise CorruptSnapshot(
            f"the log of {storage.uri} ends at {log.end}, which does not fit an interrupted write of {write.rows} "
            f"publications from {write.start} on: another program has written to the log. Remove {PENDING} there to "
            "give up that write"
        )
    if write.batch is not None:
        storage.write(f"done/{write.job}.json", [msgspec.json.encode(_DoneBatch(write.batch, offset))])
    storage.remove(PENDING)
    _remove_staged(storage, write.job)


def publications_of(settings: RowSettings, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a table as publications; raises for one that is none, or leaves it out."""
    if settings.is_json:
        return _from_json(settings, rows.column(PUBLICATION).to_pylist())
    names = [name for name in rows.schema.names if name != settings.offset]
    records = rows.select(names)
    records = records.cast(
        pa.schema([(field.name, _LOG_TYPES.get(field.type, field.type)) for field in records.schema])
    )
    accepted = accept("encrypted" if POINT in names else "plain", records)
    if accepted.rejected and not settings.drops:
        raise _refused(next(iter(accepted.rejected.values())))
    return records.take(pa.array(accepted.rows)) if accepted.rejected else records


def _from_json(settings: RowSettings, texts: list[str | None]) -> pa.RecordBatch:
    made: list[dict[str, Any]] = []
    for text in texts:
        try:
            if text is None:
                raise InvalidValue(f"column {PUBLICATION!r} is NULL")
            made.append(publication_row(text.encode()))
        except InvalidValue as error:
            if not settings.drops:
                raise _refused(str(error)) from None
    return columns_of_rows(made)


def _refused(reason: str) -> InvalidValue:
    return InvalidValue(
        f"a row is no publication: {reason}; nothing was written. Option rejected=drop leaves such rows out"
    )


def _row_settings(options: Mapping[str, str], schema: StructType) -> RowSettings:
    offset = options.get("offsetColumn", OFFSET)
    columns = {field.name: field.dataType.simpleString() for field in schema.fields if field.name != offset}
    form = options.get("rows", "json" if columns == {PUBLICATION: "string"} else "columns")
    drops = options.get("rejected", "fail")
    if form not in ("json", "columns") or drops not in ("fail", "drop"):
        raise InvalidValue(f"options rows={form} rejected={drops}: rows is json or columns, rejected is fail or drop")
    if form == "json" and columns.get(PUBLICATION) != "string":
        raise InvalidValue(f"rows=json needs a column {PUBLICATION!r} of type string, got {', '.join(columns)}")
    for name, type in columns.items() if form == "columns" else ():
        if type not in _TYPES and type != _ENVELOPE.get(name):
            raise InvalidValue(f"column {name!r} is of type {type}; a log takes {SUPPORTED}: cast it, or leave it out")
    if not columns:
        raise InvalidValue("the table has no columns for publications")
    return RowSettings(form == "json", drops == "drop", offset)


def _writes(place: str) -> ObjectStorage:
    return open_storage(place).below("writes")


@contextmanager
def _only_writer(place: str) -> Iterator[None]:
    """On a local disk, one process at a time; at a URI, conditional puts see to it."""
    path = _writes(place).path("lock")
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_directory(path.parent)
    try:
        yield
    finally:
        os.close(lock)


def _names(storage: ObjectStorage, staged: StagedBlocks, number: int) -> tuple[str, ...]:
    """The names of a task's parts; one that was returned is staged now."""
    if staged.content is None:
        return staged.names
    name = f"staged/{staged.job}/{number:05d}-returned.blocks"
    storage.write(name, [staged.content])
    return (name,)


def _remove_staged(storage: ObjectStorage, job: str) -> None:
    """With the parts of failed attempts."""
    for name in storage.names(f"staged/{job}/"):
        storage.remove(name)


def _blocks(storage: ObjectStorage, write: PendingWrite) -> Iterator[pa.RecordBatch]:
    for name in write.parts:
        try:
            streams = msgspec.msgpack.decode(storage.read(name), type=list[bytes])
        except FileNotFoundError:
            raise CorruptSnapshot(f"{storage.uri}/{name} is missing, which a write to the log needs") from None
        for stream in streams:
            yield pa.ipc.open_stream(stream).read_next_batch()


def _is_done(storage: ObjectStorage, query: str, batch: int) -> bool:
    done = _read(storage, f"done/{query}.json", _DoneBatch)
    return done is not None and batch <= done.batch


def _read(storage: ObjectStorage, name: str, type: Any) -> Any:
    try:
        return msgspec.json.decode(storage.read(name), type=type)
    except FileNotFoundError:
        return None
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{storage.uri}/{name} is damaged: {error}; restore it from a copy") from None


def _to_stream(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write_batch(records)
    return bytes(sink.getvalue().to_pybytes())
