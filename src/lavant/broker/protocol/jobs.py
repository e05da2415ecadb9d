"""What a hub is asked about jobs, and what it answers: frozen values that are also the journal's format.

    command (changes something; goes into the journal)        answer
    ──────────────────────────────────────────────────        ───────────────
    DefineJobs                                                Done
    RemoveJobType                                             Done
    KeepJobs                                                  Done
    SubmitJob                                                 Submitted
    LeaseTasks                                                Leased
    CompleteTask, FailTask, ExtendTask                        Reported
    CancelJob                                                 Cancelled

    query (changes nothing)                                   answer
    ───────────────────────                                   ───────────────
    DescribeJob                                               JobView
    ListJobs                                                  JobsListed
    DescribeJobType                                           JobTypeView
    ListJobTypes                                              JobTypesListed

A worker names its work by (job, task, attempt). An attempt is given to one worker only, since the answer to a lease
waits for its record to be durable; so a report that comes twice is recognised, and one that comes too late is refused.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.broker.protocol import queues as queue_commands
from lavant.broker.workflows.definitions.definition import JobDefinition, Workflows, queue_of
from lavant.core.publications.attributes import AttributeValue


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """No cycles can be made of frozen values, so the garbage collector need not look at them."""


class Result(_Value, frozen=True):
    """What a task made."""

    body: bytes = b""
    attributes: dict[str, AttributeValue] = {}
    """Conditions look at these."""


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class DefineJobs(_Value, tag="define-jobs", frozen=True):
    """New job types and topics, or other definitions for types that exist. Jobs under way keep the one they have."""

    workflows: Workflows


class RemoveJobType(_Value, tag="remove-job-type", frozen=True):
    """No more jobs of this type are accepted; those under way go on."""

    job_type: str


class KeepJobs(_Value, tag="keep-jobs", frozen=True):
    """How long jobs that have ended are remembered: until one of these is reached, the oldest go first."""

    count_max: int = 100_000
    bytes_max: int = 1 << 30
    ms_max: int = 24 * 60 * 60 * 1000


class SubmitJob(_Value, tag="submit-job", frozen=True):
    job_type: str
    input: bytes = b""
    """Stored once, and given to the worker of each task."""
    name: str = ""
    """A second job of this name, type and input, while the first is known, is taken for the first: so a submission can
    be repeated. One of another type or input is refused."""


class LeaseTasks(_Value, tag="lease-tasks", frozen=True):
    topic: str
    worker: str
    count: int = 1
    wait_ms: int | None = None
    """How long the server may wait for a task; the queue's own by default. The hub itself never waits."""
    lease_ms: int | None = None
    """The first deadline, if it is to be earlier than the task's own time is up: a worker that promises to ask for more
    in time (`ExtendTask`) is missed sooner when it is gone."""

    @property
    def queue(self) -> str:
        """Where these tasks wait."""
        return queue_of(self.topic)


class CompleteTask(_Value, tag="complete-task", frozen=True):
    job: int
    task: str
    attempt: int
    result: Result = Result()


class FailTask(_Value, tag="fail-task", frozen=True):
    job: int
    task: str
    attempt: int
    reason: str = ""
    is_final: bool = False
    """It is of no use to try again."""


class ExtendTask(_Value, tag="extend-task", frozen=True):
    """The worker is alive and needs more time."""

    job: int
    task: str
    attempt: int
    timeout_ms: int
    """From now on."""


class CancelJob(_Value, tag="cancel-job", frozen=True):
    job: int


class TaskAttempt(_Value, frozen=True):
    job: int
    task: str
    attempt: int


class ReleaseTasks(_Value, tag="release-tasks", frozen=True):
    """The server's own doing: tasks that were leased, and whose worker was gone before it was told, are queued again.

    The attempt has not begun: the next worker makes the same one.
    """

    tasks: list[TaskAttempt]


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DescribeJob(_Value, tag="describe-job", frozen=True):
    job: int


class ListJobs(_Value, tag="list-jobs", frozen=True):
    after: int = 0
    """Only jobs with a larger number."""
    count: int = 100
    state: str = ""
    """Only jobs in this state."""


class DescribeJobType(_Value, tag="describe-job-type", frozen=True):
    job_type: str


class ListJobTypes(_Value, tag="list-job-types", frozen=True):
    pass


JobCommand: TypeAlias = (
    DefineJobs
    | RemoveJobType
    | KeepJobs
    | SubmitJob
    | LeaseTasks
    | CompleteTask
    | FailTask
    | ExtendTask
    | CancelJob
    | ReleaseTasks
)
JobQuery: TypeAlias = DescribeJob | ListJobs | DescribeJobType | ListJobTypes
JobRequest: TypeAlias = JobCommand | JobQuery
Request: TypeAlias = queue_commands.Request | JobRequest
"""All that a hub with jobs can be asked."""


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobSubmitted(_Value, tag="job-submitted", frozen=True):
    job: int
    """Counts up, and is never given twice."""
    is_new: bool


class TaskAssignment(_Value, frozen=True):
    """A task for a worker, with all that it needs."""

    job: int
    job_type: str
    task: str
    attempt: int
    """Counted from 1. Reports name it."""
    deadline_ms: int
    """Until then it must be reported, or more time be asked for."""
    input: bytes
    """That of the job."""
    results: dict[str, Result]
    """Of the tasks before, by their names."""
    timeout_ms: int = 0
    """How long the attempt may take, as the task is defined."""


class TasksLeased(_Value, tag="tasks-leased", frozen=True):
    tasks: list[TaskAssignment]


class Reported(_Value, tag="task-reported", frozen=True):
    is_new: bool
    """False if this very report had come before."""
    job_state: str
    deadline_ms: int = 0
    """Until when the worker has the task now; 0 if it has it no more."""


class Cancelled(_Value, tag="job-cancelled", frozen=True):
    is_new: bool
    """False if it had ended before."""
    job_state: str


class AttemptView(_Value, frozen=True):
    queued_ms: int
    started_ms: int
    """0 if no worker has had it yet."""
    worker: str
    ended_ms: int
    outcome: str
    reason: str


class TaskView(_Value, frozen=True):
    name: str
    topic: str
    state: str
    attempts: list[AttemptView]


class JobView(_Value, tag="job", frozen=True):
    """A job and its timeline."""

    number: int
    job_type: str
    name: str
    state: str
    """`running`, `completed`, `failed` or `cancelled`."""
    reason: str
    submitted_ms: int
    ended_ms: int
    """0 while it is under way."""
    tasks: list[TaskView]
    results: dict[str, Result]
    """Of the tasks behind which nothing comes."""
    input: bytes = b""
    """Of a job that failed or was cancelled, so that it can be submitted once more."""
    input_digest: bytes = b""
    """Of a job that was completed: tells a repeated submission from another one of the same name."""


class JobSummary(_Value, frozen=True):
    number: int
    job_type: str
    name: str
    state: str
    submitted_ms: int
    ended_ms: int


class JobsListed(_Value, tag="jobs-listed", frozen=True):
    jobs: list[JobSummary]
    after: int | None
    """Ask again with this for more; None if there are no more."""


class JobTypeView(_Value, tag="job-type", frozen=True):
    definition: JobDefinition
    running: int
    submitted: int
    """Since the type was first defined; so are the other totals."""
    completed: int
    failed: int
    cancelled: int


class JobTypesListed(_Value, tag="job-types-listed", frozen=True):
    types: list[str]
    topics: list[str]


JobAnswer: TypeAlias = (
    JobSubmitted | TasksLeased | Reported | Cancelled | JobView | JobsListed | JobTypeView | JobTypesListed
)
Answer: TypeAlias = queue_commands.Answer | JobAnswer
