"""The job store: running jobs, and ended ones that are kept for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lavant.broker.protocol.jobs import JobsListed, JobSummary, KeepJobs, Result
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import JOB_ENDED, text_bytes
from lavant.broker.queues.ordering.sorted_numbers import SortedNumbers
from lavant.broker.workflows.job import Job, memory_of_result, size_of
from lavant.broker.workflows.limits import LOOKED_AT_MAX, JobLimits
from lavant.broker.workflows.views import encode_view, summary_of
from lavant.core.errors import LimitExceeded, StorageFull, UnknownJob


class EndedJob(NamedTuple):
    number: int
    ended_ms: int
    name: str
    size_bytes: int


class Archive:
    """Ended jobs in the order in which they ended; their views are stored elsewhere.

    >>> archive = Archive(KeepJobs(count_max=2))
    >>> for number in (5, 3, 8):
    ...     archive.add(EndedJob(number, 1_000, "", 200))
    >>> [ended.number for ended in archive.surplus(1_000)], len(archive)
    ([5], 2)
    """

    __slots__ = ("_ended", "bytes", "keep")

    def __init__(self, keep: KeepJobs) -> None:
        self.keep = keep
        self.bytes = 0
        self._ended: deque[EndedJob] = deque()

    def __len__(self) -> int:
        return len(self._ended)

    def __iter__(self) -> Iterator[EndedJob]:
        return iter(self._ended)

    def add(self, ended: EndedJob) -> None:
        self._ended.append(ended)
        self.bytes += ended.size_bytes

    def surplus(self, now_ms: int) -> Iterator[EndedJob]:
        """Yield the jobs to forget, one by one."""
        ended, keep = self._ended, self.keep
        while ended and (
            len(ended) > keep.count_max or self.bytes > keep.bytes_max or self._expires_ms(ended[0]) <= now_ms
        ):
            self.bytes -= ended[0].size_bytes
            yield ended.popleft()

    def next_ms(self) -> int | None:
        """When the next one expires."""
        return self._expires_ms(self._ended[0]) if self._ended else None

    def _expires_ms(self, ended: EndedJob) -> int:
        """Whole seconds, so that a busy machine need not wake for each."""
        return -(-(ended.ended_ms + self.keep.ms_max) // SECOND_MS) * SECOND_MS


FORGOTTEN = "forgotten"


class JobStore:
    """Jobs by number and by name. Numbers are never reused."""

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self.number = 0
        """The last number assigned."""
        self.running = 0
        """Number of running jobs."""
        self.bytes = 0
        """Of their inputs and results."""
        self.archive = Archive(KeepJobs())
        self._jobs: dict[int, Job | bytes] = {}
        """An ended job is stored as its view."""
        self._by_name: dict[str, int] = {}
        self.on_ended: Callable[[Job, str, str, int], None] | None = None
        """Called with each job that ends, its state, the reason and the time."""
        self._numbers = SortedNumbers()

    def __getitem__(self, number: int) -> Job | bytes:
        job = self._jobs.get(number)
        if job is None:
            raise UnknownJob(f"there is no job {number}, or it ended so long ago that it was forgotten")
        return job

    def running_job(self, number: int) -> Job | None:
        job = self._jobs.get(number)
        return job if isinstance(job, Job) else None

    def named(self, name: str) -> int | None:
        return self._by_name.get(name)

    def state_of(self, number: int) -> str:
        job = self._jobs.get(number)
        return FORGOTTEN if job is None else summary_of(job).state

    def check_room(self, size_bytes: int, limits: JobLimits) -> None:
        """Raise if there is no room for one more."""
        if self.running >= limits.running_max:
            raise LimitExceeded(
                f"{self.running} jobs are running, which is the limit; submit again when some have ended"
            )
        if self.bytes + size_bytes > limits.bytes_max:
            raise StorageFull(
                f"the running jobs hold {self.bytes} bytes, {size_bytes} more would exceed the limit of "
                f"{limits.bytes_max}; submit again when some have ended, or raise the limit"
            )

    def add(self, job: Job) -> None:
        """Add a running job."""
        self._enter(job.number, job.name, job)
        self.running += 1
        self.bytes += job.bytes
        self._counters.memory += job.memory

    def add_result(self, job: Job, result: Result) -> None:
        """Count a result of a job."""
        size_bytes = size_of(result)
        job.bytes += size_bytes
        self.bytes += size_bytes
        self.hold(job, memory_of_result(result))

    def hold(self, job: Job, size_bytes: int) -> None:
        """Count more memory for a job."""
        job.memory += size_bytes
        self._counters.memory += size_bytes

    def end(self, job: Job, state: str, reason: str, now_ms: int) -> None:
        """End a job: only its view is kept."""
        self.running -= 1
        self.bytes -= job.bytes
        self._counters.memory -= job.memory
        view = encode_view(job, state, reason, now_ms)
        self._jobs[job.number] = view
        self._archive(EndedJob(job.number, now_ms, job.name, len(view)))
        if self.on_ended is not None:
            self.on_ended(job, state, reason, now_ms)
        self.forget(now_ms)

    def restore_ended(self, number: int, ended_ms: int, name: str, view: bytes) -> None:
        self._enter(number, name, view)
        self._archive(EndedJob(number, ended_ms, name, len(view)))

    def forget(self, now_ms: int) -> None:
        """Forget expired jobs."""
        for ended in self.archive.surplus(now_ms):
            del self._jobs[ended.number]
            self._counters.memory -= _memory_of(ended)
            if ended.name:
                del self._by_name[ended.name]
            if len(self._numbers) > 2 * len(self._jobs):
                self._numbers.tidy(self._jobs)

    def all_running(self) -> Iterator[Job]:
        """By number."""
        for number in self._numbers.above(0, self._jobs):
            job = self._jobs[number]
            if isinstance(job, Job):
                yield job

    def all_ended(self) -> Iterator[tuple[int, int, str, bytes]]:
        """Number, end time, name and view, in the order in which they ended."""
        for ended in self.archive:
            view = self._jobs[ended.number]
            assert isinstance(view, bytes)
            yield ended.number, ended.ended_ms, ended.name, view

    def listed(self, after: int, count: int, state: str) -> JobsListed:
        """The next jobs above a number, in this state or in any."""
        found: list[JobSummary] = []
        looked_at, last = 0, after
        for number in self._numbers.above(after, self._jobs):
            if looked_at == LOOKED_AT_MAX or len(found) == count:
                return JobsListed(found, last)
            looked_at, last = looked_at + 1, number
            summary = summary_of(self._jobs[number])
            if state in ("", summary.state):
                found.append(summary)
        return JobsListed(found, None)

    def _archive(self, ended: EndedJob) -> None:
        self.archive.add(ended)
        self._counters.memory += _memory_of(ended)

    def _enter(self, number: int, name: str, job: Job | bytes) -> None:
        self._jobs[number] = job
        self._numbers.add(number)
        if name:
            self._by_name[name] = number


def _memory_of(ended: EndedJob) -> int:
    return JOB_ENDED + text_bytes(ended.name) + ended.size_bytes
