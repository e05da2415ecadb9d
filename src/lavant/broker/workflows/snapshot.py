"""Snapshots of jobs: parts in MessagePack, before those of the queues.

    JobsHead | RunningPart … | EndedPart … | JobsEnd | the queues' own

Equal states have equal snapshots. Job types used only by running jobs are included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.jobs import KeepJobs, ScheduleState
from lavant.broker.queues.snapshot import CHUNK_BYTES
from lavant.broker.workflows.definitions.dag import JobType
from lavant.broker.workflows.definitions.definition import JobDefinition
from lavant.broker.workflows.execution import JobExecution
from lavant.broker.workflows.job import Job, TaskState
from lavant.broker.workflows.job_store import JobStore
from lavant.broker.workflows.job_types import JobTotals, JobTypes
from lavant.broker.workflows.schedules import Schedules
from lavant.broker.workflows.topics import Topics
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, check_format
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

FORMAT = 1
JOB_BYTES = 256
"""Approximate bytes of a job besides its content."""


class _Part(msgspec.Struct, frozen=True, array_like=True):
    pass


class JobsHead(_Part, tag="jobs", frozen=True):
    format: int
    number: int
    keep: KeepJobs
    topics: list[str]
    types: list[tuple[JobDefinition, JobTotals | None]]
    """All in use; those without totals only by running jobs."""
    schedules: list[ScheduleState] = []


class SavedJob(msgspec.Struct, frozen=True, array_like=True):
    number: int
    type: int
    """Its index in the head."""
    name: str
    input: bytes
    submitted_ms: int
    deadline_ms: int
    tasks: list[TaskState]
    trace: TraceContext = NO_TRACE


class RunningPart(_Part, tag="running-jobs", frozen=True):
    jobs: list[SavedJob]


class EndedPart(_Part, tag="ended-jobs", frozen=True):
    jobs: list[tuple[int, int, str, bytes]]
    """Number, end time, name and view, in the order in which they ended."""


class JobsEnd(_Part, tag="jobs-end", frozen=True):
    running: int
    ended: int


Part: TypeAlias = JobsHead | RunningPart | EndedPart | JobsEnd

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode
_kind_of = msgspec.msgpack.Decoder(list[Any]).decode


def encode(store: JobStore, types: JobTypes, topics: Topics, schedules: Schedules) -> Iterator[bytes]:
    places: dict[int, int] = {}
    definitions: list[tuple[JobDefinition, JobTotals | None]] = []
    for type_ in types:
        places[id(type_)] = len(definitions)
        definitions.append((type_.definition, types.totals(type_.name)))
    for job in store.all_running():
        if id(job.type) not in places:
            places[id(job.type)] = len(definitions)
            definitions.append((job.type.definition, None))
    keep = store.archive.keep
    yield _encode(JobsHead(FORMAT, store.number, keep, topics.names(), definitions, list(schedules)))
    running = ((_saved(job, places[id(job.type)]), job.bytes) for job in store.all_running())
    ended = ((ended, len(ended[3])) for ended in store.all_ended())
    for jobs in _by_size(running):
        yield _encode(RunningPart(jobs))
    for views in _by_size(ended):
        yield _encode(EndedPart(views))
    yield _encode(JobsEnd(store.running, len(store.archive)))


def decode(chunks: Iterable[bytes]) -> tuple[list[Part], Iterator[bytes]]:
    """The parts about jobs, none in a snapshot of queues only; and the chunks of the queues."""
    remaining = iter(chunks)
    first = next(remaining, b"")
    if not _is_head(first):
        return [], chain((first,), remaining)
    parts: list[Part] = []
    for place, chunk in enumerate(chain((first,), remaining)):
        try:
            parts.append(_decode(chunk))
        except UNDECODABLE as error:
            raise _corrupt(f"chunk {place} cannot be read ({error})") from None
        if isinstance(parts[-1], JobsEnd):
            return parts, remaining
    raise _corrupt("its end is missing")


def fill(
    parts: list[Part],
    store: JobStore,
    types: JobTypes,
    topics: Topics,
    execution: JobExecution,
    schedules: Schedules,
) -> None:
    """Fill a machine that has its queues and no jobs yet."""
    if not parts:
        return
    head, *others = parts
    assert isinstance(head, JobsHead)
    check_format("the snapshot of the jobs", head.format, FORMAT, oldest=FORMAT)
    topics.restore(head.topics)
    for schedule in head.schedules:
        schedules.put(schedule)
    store.number, store.archive.keep = head.number, head.keep
    used = [JobType(definition) for definition, _ in head.types]
    for type_, (_, totals) in zip(used, head.types, strict=True):
        if totals is not None:
            types.restore(type_, totals)
    for part in others:
        if isinstance(part, RunningPart):
            for saved in part.jobs:
                execution.restore(_restored(saved, used))
        elif isinstance(part, EndedPart):
            for ended in part.jobs:
                store.restore_ended(*ended)
        elif isinstance(part, JobsHead) or (part.running, part.ended) != (store.running, len(store.archive)):
            raise _corrupt(
                f"{store.running} running and {len(store.archive)} ended jobs were read, not as many as were written"
            )


def _saved(job: Job, type_: int) -> SavedJob:
    return SavedJob(job.number, type_, job.name, job.input, job.submitted_ms, job.deadline_ms, job.tasks, job.trace)


def _restored(saved: SavedJob, types: list[JobType]) -> Job:
    if not 0 <= saved.type < len(types) or len(saved.tasks) != len(types[saved.type].steps):
        raise _corrupt(f"job {saved.number} does not fit its type")
    return Job(
        saved.number,
        types[saved.type],
        name=saved.name,
        input_=saved.input,
        submitted_ms=saved.submitted_ms,
        deadline_ms=saved.deadline_ms,
        tasks=saved.tasks,
        trace=saved.trace,
    )


def _by_size(values: Iterable[tuple[Any, int]]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    bytes_left = CHUNK_BYTES
    for value, size_bytes in values:
        chunk.append(value)
        bytes_left -= size_bytes + JOB_BYTES
        if bytes_left < 0:
            yield chunk
            chunk, bytes_left = [], CHUNK_BYTES
    if chunk:
        yield chunk


def _is_head(chunk: bytes) -> bool:
    try:
        return _kind_of(chunk)[:1] == ["jobs"]
    except UNDECODABLE:
        return False


def _corrupt(problem: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"the snapshot of the jobs is damaged: {problem}; restore it from a copy")
