"""A running job: the state of each task, and the tasks that start when one is decided.

                                  ┌─────────── failed, timed out; attempts are left ───────────┐
                                  ▼                                                            │
    waiting ──all arrows decided──► queued ──a worker leases it──► running ──reported as done──► done
       │                                                               │
       └──────► skipped   nothing leads here                           └──last attempt failed──► dead

A job ends when all its tasks are done or skipped, or dead where its type allows it to continue; when another task is
dead; when its time is up; or when it is cancelled. Tasks that are queued or running then are cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lavant.broker.protocol.jobs import Result
from lavant.broker.queues.accounting.memory import ATTEMPT, JOB, RESULT, TASK, text_bytes
from lavant.broker.workflows.definitions.dag import JobType, is_taken
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

WAITING, QUEUED, RUNNING = "waiting", "queued", "running"
DONE, SKIPPED, DEAD, CANCELLED = "done", "skipped", "dead", "cancelled"
COMPLETED, FAILED, TIMED_OUT = "completed", "failed", "timed out"
JOB_STATES = (RUNNING, COMPLETED, FAILED, CANCELLED)
NOTHING = Result()


class RunningAttempt(msgspec.Struct, array_like=True, gc=False):
    """One attempt at a task, from its message to its end. The layout is that of `AttemptView`."""

    queued_ms: int
    started_ms: int = 0
    worker: str = ""
    ended_ms: int = 0
    outcome: str = ""
    """`completed`, `failed`, `timed out` or `cancelled`; empty while it lasts."""
    reason: str = ""


class TaskState(msgspec.Struct, array_like=True, gc=False):
    state: str
    undecided: int
    """Incoming arrows not decided yet."""
    taken: int = 0
    """A bit for each task from which an arrow was taken."""
    message: int = 0
    """The number of its latest attempt's message."""
    deadline_ms: int = 0
    """Of the running attempt."""
    attempts: list[RunningAttempt] = []
    result: Result | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a message for it."""
        return self.state in (QUEUED, RUNNING)


class Job:
    """Trusts its caller; messages and timers belong to the machine."""

    __slots__ = (
        "bytes",
        "deadline_ms",
        "input",
        "memory",
        "name",
        "number",
        "submitted_ms",
        "tasks",
        "trace",
        "type",
        "undecided",
    )

    def __init__(
        self,
        number: int,
        type_: JobType,
        *,
        name: str,
        input_: bytes,
        submitted_ms: int,
        deadline_ms: int,
        tasks: list[TaskState] | None = None,
        trace: TraceContext = NO_TRACE,
    ) -> None:
        self.number = number
        self.type = type_
        self.name = name
        self.input = input_
        self.submitted_ms = submitted_ms
        self.deadline_ms = deadline_ms
        self.trace = trace
        self.tasks = [TaskState(WAITING, step.needed) for step in type_.steps] if tasks is None else tasks
        self.undecided = sum(1 for task in self.tasks if task.state in (WAITING, QUEUED, RUNNING))
        """Number of tasks that may still run."""
        self.bytes = len(input_) + sum(size_of(task.result) for task in self.tasks if task.result is not None)
        """Of the input and all results."""
        self.memory = memory_of(self)
        """Its memory, as counted by `JobStore`."""

    def decide(self, index: int, attributes: Mapping[str, AttributeValue]) -> list[int]:
        """Decide a task by the attributes of its result; return the indexes of the tasks that start now, ascending."""
        starting: list[int] = []
        decided: list[tuple[int, Mapping[str, AttributeValue] | None]] = [(index, attributes)]
        while decided:
            source, found = decided.pop()
            self.undecided -= 1
            for target, when in self.type.steps[source].arrows:
                task = self.tasks[target]
                task.undecided -= 1
                if found is not None and is_taken(when, found):
                    task.taken |= 1 << source
                if task.undecided:
                    continue
                if self.type.steps[target].starts(task.taken.bit_count()):
                    starting.append(target)
                else:
                    task.state = SKIPPED
                    decided.append((target, None))
        starting.sort()
        return starting

    def results_for(self, index: int) -> dict[str, Result]:
        """Results of the tasks that lead to this one."""
        taken = self.tasks[index].taken
        results: dict[str, Result] = {}
        while taken:
            source = (taken & -taken).bit_length() - 1
            taken &= taken - 1
            result = self.tasks[source].result
            results[self.type.steps[source].definition.name] = NOTHING if result is None else result
        return results

    def results(self) -> dict[str, Result]:
        """Results of the job: of its tasks without a successor."""
        return {
            step.definition.name: task.result
            for step, task in zip(self.type.steps, self.tasks, strict=True)
            if task.result is not None and not step.arrows
        }


def size_of(result: Result) -> int:
    """Bytes of a result, attributes estimated."""
    return len(result.body) + sum(
        len(name) + (len(value) if isinstance(value, str) else 8) for name, value in result.attributes.items()
    )


def memory_of(job: Job) -> int:
    """Memory of a running job, without its messages."""
    return memory_of_new(job.name, job.input, len(job.tasks), job.trace) + sum(
        sum(ATTEMPT + text_bytes(attempt.reason) for attempt in task.attempts) + memory_of_result(task.result)
        for task in job.tasks
    )


def memory_of_new(name: str, input_: bytes, tasks: int, trace: TraceContext) -> int:
    """Memory of a job when it is submitted."""
    traced = sum(map(text_bytes, trace)) if trace.parent else 0
    return JOB + text_bytes(name) + len(input_) + tasks * TASK + traced


def memory_of_result(result: Result | None) -> int:
    return 0 if result is None else RESULT + size_of(result)
