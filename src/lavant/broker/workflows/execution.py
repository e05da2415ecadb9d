"""Execution of jobs: updates a task, its message and its timer at each step.

Each step is atomic: the message of an attempt is removed when the attempt ends, and the messages of the tasks that
follow are added in the same step. Reports and times are checked before; nothing here can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

import msgspec

from lavant.broker.protocol.jobs import Result, TaskAssignment
from lavant.broker.queues.accounting.memory import ATTEMPT, text_bytes
from lavant.broker.queues.message import Message
from lavant.broker.queues.queue import QueueState
from lavant.broker.workflows.definitions.definition import letters_of, queue_of
from lavant.broker.workflows.job import (
    CANCELLED,
    COMPLETED,
    DEAD,
    DONE,
    FAILED,
    NOTHING,
    QUEUED,
    RUNNING,
    TIMED_OUT,
    Job,
    RunningAttempt,
)
from lavant.broker.workflows.job_store import JobStore
from lavant.broker.workflows.job_types import JobTypes
from lavant.broker.workflows.topics import Topics

TASK_BITS, JOB_BITS = 8, 56
THE_JOB = (1 << TASK_BITS) - 1
"""Instead of a task's index: the timer of the job itself."""
STALE_MIN = 64
"""Fewer stale entries than this are not worth removing."""


class Timers:
    """Ordered by (time, job, task). `deadline_of` returns the deadline of a task or job; None if it has none."""

    __slots__ = ("_deadline_of", "_heap", "_size_max")

    def __init__(self, deadline_of: Callable[[int, int], int | None]) -> None:
        self._deadline_of = deadline_of
        # One integer per entry, time << 64 | job << 8 | task: smaller and faster to compare than a triple.
        self._heap: list[int] = []
        self._size_max = STALE_MIN

    def __len__(self) -> int:
        """Entries, including stale ones."""
        return len(self._heap)

    def add(self, deadline_ms: int, job: int, task: int) -> None:
        heap = self._heap
        heappush(heap, (deadline_ms << JOB_BITS | job) << TASK_BITS | task)
        if len(heap) > self._size_max:
            # Two entries can be equal if a task's time was changed back: keep one.
            self._heap = list({entry for entry in heap if self._is_meant(entry)})
            heapify(self._heap)
            self._size_max = 2 * len(self._heap) + STALE_MIN

    def next_ms(self) -> int | None:
        """The next deadline."""
        heap = self._heap
        while heap:
            if self._is_meant(heap[0]):
                return heap[0] >> (JOB_BITS + TASK_BITS)
            heappop(heap)
        return None

    def pop(self) -> tuple[int, int]:
        """Job and task of the next deadline. Call `next_ms` before."""
        return _whose(heappop(self._heap))

    def _is_meant(self, entry: int) -> bool:
        return self._deadline_of(*_whose(entry)) == entry >> (JOB_BITS + TASK_BITS)


def _whose(entry: int) -> tuple[int, int]:
    return entry >> TASK_BITS & (1 << JOB_BITS) - 1, entry & THE_JOB


JOB_DIGITS_MAX = 19
_encode_letter = msgspec.json.Encoder().encode


class JobExecution:
    """`touched` lists the queues that got messages; the reader empties it."""

    def __init__(self, store: JobStore, types: JobTypes, topics: Topics) -> None:
        self.touched: list[str] = []
        self._store = store
        self._types = types
        self._topics = topics
        self._timers = Timers(self._deadline_of)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, job: Job, now_ms: int) -> None:
        """Start a submitted job."""
        self._store.add(job)
        self._types.submitted(job.type.name)
        self._timers.add(job.deadline_ms, job.number, THE_JOB)
        for index in job.type.starts:
            self._queue(job, index, now_ms)

    def restore(self, job: Job) -> None:
        """Restore a job that was running when the snapshot was taken."""
        self._store.add(job)
        self._types.began(job.type.name)
        self._timers.add(job.deadline_ms, job.number, THE_JOB)
        for index, task in enumerate(job.tasks):
            if task.state == RUNNING:
                self._timers.add(task.deadline_ms, job.number, index)

    def end(self, job: Job, state: str, reason: str, now_ms: int) -> None:
        """End a job and cancel its remaining tasks."""
        for index, task in enumerate(job.tasks):
            if task.is_open:
                self._end_attempt(job, index, CANCELLED, "", now_ms)
                task.state = CANCELLED
        self._types.ended(job.type.name, state)
        self._store.end(job, state, reason, now_ms)

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(
        self, queue: QueueState, message: Message, worker: str, now_ms: int, *, lease_ms: int | None = None
    ) -> TaskAssignment | None:
        """Assign the task of a message to a worker; a message without a task is discarded."""
        job, index = self._meant_by(message)
        if job is None:
            self._topics.discard(queue, message)
            return None
        definition, task = job.type.steps[index].definition, job.tasks[index]
        attempt = task.attempts[-1]
        attempt.started_ms, attempt.worker = now_ms, worker
        task.state = RUNNING
        timeout_ms = definition.timeout_ms
        task.deadline_ms = now_ms + (timeout_ms if lease_ms is None else min(lease_ms, timeout_ms))
        self._timers.add(task.deadline_ms, job.number, index)
        self._topics.lease(queue, message, task.deadline_ms, now_ms)
        return TaskAssignment(
            job.number,
            job.type.name,
            definition.name,
            len(task.attempts),
            task.deadline_ms,
            job.input,
            job.results_for(index),
            timeout_ms,
            job.trace,
        )

    def release(self, job: Job, index: int) -> None:
        """Undo an assignment that never reached its worker: the same attempt goes to another one."""
        task = job.tasks[index]
        attempt = task.attempts[-1]
        attempt.started_ms, attempt.worker = 0, ""
        task.state = QUEUED
        topic = job.type.steps[index].definition.topic
        self._topics.release(topic, task.message)
        self.touched.append(queue_of(topic))

    def extend(self, job: Job, index: int, deadline_ms: int) -> None:
        """Extend the deadline of an attempt."""
        task = job.tasks[index]
        task.deadline_ms = deadline_ms
        self._timers.add(deadline_ms, job.number, index)
        self._topics.extend(job.type.steps[index].definition.topic, task.message, deadline_ms)

    def complete(self, job: Job, index: int, result: Result, now_ms: int) -> None:
        """Complete a task."""
        task = job.tasks[index]
        self._end_attempt(job, index, COMPLETED, "", now_ms)
        task.state, task.result = DONE, result
        self._store.add_result(job, result)
        self._go_on(job, index, result, now_ms)

    def give_up(self, job: Job, index: int, outcome: str, reason: str, now_ms: int, *, is_final: bool = False) -> None:
        """End an attempt without a result: retry, or declare the task dead."""
        definition, task = job.type.steps[index].definition, job.tasks[index]
        self._end_attempt(job, index, outcome, reason, now_ms)
        made = len(task.attempts)
        if made < definition.attempts and not is_final:
            self._queue(job, index, now_ms, definition.backoff_after_ms(made))
            return
        task.state = DEAD
        self._topics.dead_letter(definition.topic, _letter(job, index), now_ms)
        self.touched.append(letters_of(definition.topic))
        if definition.on_failure == "continue":
            self._go_on(job, index, NOTHING, now_ms)
        else:
            why = f"task {definition.name!r} {outcome} in attempt {made}"
            self.end(job, FAILED, f"{why}: {reason}" if reason else why, now_ms)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_ms(self) -> int | None:
        """The next deadline of an attempt or a job."""
        return self._timers.next_ms()

    def time_is_up(self, now_ms: int) -> None:
        """Handle the deadline that `next_ms` returned."""
        number, index = self._timers.pop()
        job = self._store.running_job(number)
        assert job is not None
        if index == THE_JOB:
            self.end(job, FAILED, f"it had not ended after {now_ms - job.submitted_ms} ms", now_ms)
        else:
            started_ms = job.tasks[index].attempts[-1].started_ms
            self.give_up(job, index, TIMED_OUT, f"no report after {now_ms - started_ms} ms", now_ms)

    # ── what they have in common ──────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, job: Job, index: int, result: Result, now_ms: int) -> None:
        """A task is decided: start those that follow, or end the job."""
        for target in job.decide(index, result.attributes):
            self._queue(job, target, now_ms)
        if not job.undecided:
            self.end(job, COMPLETED, "", now_ms)

    def _queue(self, job: Job, index: int, now_ms: int, delay_ms: int = 0) -> None:
        """Enqueue an attempt."""
        step, task = job.type.steps[index], job.tasks[index]
        topic = step.definition.topic
        task.message = self._topics.put(topic, b"%d%b" % (job.number, step.reference), now_ms, delay_ms)
        task.state = QUEUED
        task.attempts.append(RunningAttempt(now_ms))
        self._store.hold(job, ATTEMPT)
        self.touched.append(queue_of(topic))

    def _end_attempt(self, job: Job, index: int, outcome: str, reason: str, now_ms: int) -> None:
        task = job.tasks[index]
        self._topics.drop(job.type.steps[index].definition.topic, task.message)
        attempt = task.attempts[-1]
        attempt.ended_ms, attempt.outcome, attempt.reason = now_ms, outcome, reason
        self._store.hold(job, text_bytes(reason))

    def _meant_by(self, message: Message) -> tuple[Job | None, int]:
        """The task whose latest attempt this message is. Messages from elsewhere belong to no task."""
        number, _, name = message.body.partition(b"/")
        if not number.isdigit() or len(number) > JOB_DIGITS_MAX:
            return None, 0
        job = self._store.running_job(int(number))
        index = None if job is None else job.type.by_name.get(name.decode(errors="replace"))
        if job is None or index is None or job.tasks[index].message != message.number:
            return None, 0
        return job, index

    def _deadline_of(self, number: int, index: int) -> int | None:
        job = self._store.running_job(number)
        if job is None:
            return None
        if index == THE_JOB:
            return job.deadline_ms
        task = job.tasks[index]
        return task.deadline_ms if task.state == RUNNING else None


def _letter(job: Job, index: int) -> bytes:
    """The body of a dead letter, for people and programs that handle failures."""
    attempts = job.tasks[index].attempts
    last = attempts[-1]
    return _encode_letter(
        {
            "job": job.number,
            "type": job.type.name,
            "name": job.name,
            "task": job.type.steps[index].definition.name,
            "attempts": len(attempts),
            "outcome": last.outcome,
            "reason": last.reason,
            "worker": last.worker,
        }
    )
