"""Jobs and schedules: the requests, and the answers to them. These values are also the format of wire and journal.

A worker identifies its work by (job, task, attempt). Each attempt is leased to one worker only, since the answer to a
lease waits for its record to be durable. So the broker recognises a repeated report, and refuses a late one.
"""

from __future__ import annotations

from lavant.broker.protocol.commands import Answer, CommandFor, QueryFor, Value
from lavant.broker.protocol.queues import Done
from lavant.broker.workflows.definitions.definition import JobDefinition, Workflows, queue_of
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.trace_context import NO_TRACE, TraceContext


class Result(Value, frozen=True):
    """The output of a task."""

    body: bytes = b""
    attributes: dict[str, AttributeValue] = {}
    """Conditions of the workflow test these."""


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobSubmitted(Answer, tag="job-submitted", frozen=True):
    job: int
    """Increases, and is never reused."""
    is_new: bool


class TaskAssignment(Value, frozen=True):
    """A leased task with everything the worker needs."""

    job: int
    job_type: str
    task: str
    attempt: int
    """The attempt number, from 1. Reports name it."""
    deadline_ms: int
    """Report or extend the attempt until then."""
    input: bytes
    """The job's input."""
    results: dict[str, Result]
    """Of the tasks before, by name."""
    timeout_ms: int = 0
    """The task's timeout, as it is defined."""
    trace: TraceContext = NO_TRACE
    """As the job was submitted with."""


class TasksLeased(Answer, tag="tasks-leased", frozen=True):
    tasks: list[TaskAssignment]


class Reported(Answer, tag="task-reported", frozen=True):
    is_new: bool
    """False if the report is a repetition."""
    job_state: str
    deadline_ms: int = 0
    """The new end of the lease; 0 if the lease is over."""


class Cancelled(Answer, tag="job-cancelled", frozen=True):
    is_new: bool
    """False if the job had ended before."""
    job_state: str


class AttemptView(Value, frozen=True):
    queued_ms: int
    started_ms: int
    """0 if no worker has leased it yet."""
    worker: str
    ended_ms: int
    outcome: str
    reason: str


class TaskView(Value, frozen=True):
    name: str
    topic: str
    state: str
    attempts: list[AttemptView]


class JobView(Answer, tag="job", frozen=True):
    """A job and its timeline."""

    number: int
    job_type: str
    name: str
    state: str
    """`running`, `completed`, `failed` or `cancelled`."""
    reason: str
    submitted_ms: int
    ended_ms: int
    """0 while it is running."""
    tasks: list[TaskView]
    results: dict[str, Result]
    """Of the last tasks, by name."""
    input: bytes = b""
    """Of a failed or cancelled job, so that it can be submitted again."""
    input_digest: bytes = b""
    """Of a completed job: distinguishes a repeated submission from another one of the same name."""
    trace: TraceContext = NO_TRACE
    """As it was submitted with."""


class JobSummary(Value, frozen=True):
    """A job in a list."""

    number: int
    job_type: str
    name: str
    state: str
    submitted_ms: int
    ended_ms: int


class JobsListed(Answer, tag="jobs-listed", frozen=True):
    jobs: list[JobSummary]
    after: int | None
    """Pass this to the next request; None if there are no more."""


class JobTypeView(Answer, tag="job-type", frozen=True):
    definition: JobDefinition
    running: int
    submitted: int
    """Since the type was first defined, like the other totals."""
    completed: int
    failed: int
    cancelled: int


class JobTypesListed(Answer, tag="job-types-listed", frozen=True):
    types: list[str]
    topics: list[str]


class ScheduleState(Value, frozen=True):
    """A schedule, when it fires next, and what became of it the last time."""

    name: str
    cron: str
    """Five fields, in UTC; empty if it has an interval."""
    interval_ms: int
    job_type: str
    """The type of the job that it submits; empty if it sends a message."""
    queue: str
    body: bytes
    """The input of the job, or the body of the message."""
    created_ms: int
    next_ms: int
    fired: int = 0
    """How often it has fired."""
    last_ms: int = 0
    """When it last fired; 0 if never."""
    last_error: str = ""
    """Why the last one came to nothing: the queue is gone, say."""
    namespace: str = ""
    """Of the key that added it."""


class ScheduleAdded(Answer, tag="schedule-added", frozen=True):
    schedule: ScheduleState
    is_new: bool


class SchedulesListed(Answer, tag="schedules-listed", frozen=True):
    schedules: list[ScheduleState]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class DefineJobs(CommandFor[Done], tag="define-jobs", frozen=True):
    """Define job types and topics, or replace definitions. Running jobs keep the one they started with."""

    workflows: Workflows


class RemoveJobType(CommandFor[Done], tag="remove-job-type", frozen=True):
    """Accept no more jobs of this type; running ones continue."""

    job_type: str


class KeepJobs(CommandFor[Done], tag="keep-jobs", frozen=True):
    """Set how long ended jobs are remembered: when a bound is reached, the oldest are forgotten."""

    count_max: int = 100_000
    bytes_max: int = 1 << 30
    ms_max: int = 24 * 60 * 60 * 1000


class SubmitJob(CommandFor[JobSubmitted], tag="submit-job", frozen=True):
    """Submit a job."""

    job_type: str
    input: bytes = b""
    """Stored once, and delivered with each task."""
    name: str = ""
    """Idempotency key: while the job is known, a second submission with this name, type and input is a repetition. One
    with another type or input is refused."""
    trace: TraceContext = NO_TRACE
    """Delivered with each task. An invalid one is left out."""


class LeaseTasks(CommandFor[TasksLeased], tag="lease-tasks", frozen=True):
    """Lease tasks of a topic to a worker, waiting for the first if there is none (long poll)."""

    topic: str
    worker: str
    count: int = 1
    wait_ms: int | None = None
    """How long the server may wait for a task; the queue's own by default."""
    lease_ms: int | None = None
    """The first deadline, if it is earlier than the task's timeout: the loss of a worker that extends its leases
    (`ExtendTask`) is noticed sooner."""

    @property
    def queue(self) -> str:
        """The queue of the topic."""
        return queue_of(self.topic)


class CompleteTask(CommandFor[Reported], tag="complete-task", frozen=True):
    """Report that an attempt succeeded, with its result."""

    job: int
    task: str
    attempt: int
    result: Result = Result()


class FailTask(CommandFor[Reported], tag="fail-task", frozen=True):
    """Report that an attempt failed."""

    job: int
    task: str
    attempt: int
    reason: str = ""
    is_final: bool = False
    """Do not retry."""


class ExtendTask(CommandFor[Reported], tag="extend-task", frozen=True):
    """Extend the lease of an attempt: the worker is alive and needs more time."""

    job: int
    task: str
    attempt: int
    timeout_ms: int
    """From now on."""


class CancelJob(CommandFor[Cancelled], tag="cancel-job", frozen=True):
    """Cancel a job; its view is kept."""

    job: int


class TaskAttempt(Value, frozen=True):
    job: int
    task: str
    attempt: int


class ReleaseTasks(CommandFor[Done], tag="release-tasks", frozen=True):
    """Undo the lease of tasks whose worker was gone before it got them.

    The attempt has not begun: the next worker makes the same one.
    """

    tasks: list[TaskAttempt]


class AddSchedule(CommandFor[ScheduleAdded], tag="add-schedule", frozen=True):
    """Add a schedule, or replace the one of this name."""

    name: str
    cron: str = ""
    interval_ms: int = 0
    """Give one of both."""
    job_type: str = ""
    queue: str = ""
    """Give one of both."""
    body: bytes = b""
    namespace: str = ""


class RemoveSchedule(CommandFor[Done], tag="remove-schedule", frozen=True):
    """Remove a schedule; jobs and messages that it has made stay."""

    name: str
    namespace: str = ""


class FireSchedule(CommandFor[Done], tag="fire-schedule", frozen=True):
    """Submit the job or send the message of a schedule that is due, and set when it fires next."""

    name: str
    namespace: str = ""


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DescribeJob(QueryFor[JobView], tag="describe-job", frozen=True):
    """Return a job with its timeline and results."""

    job: int


class ListJobs(QueryFor[JobsListed], tag="list-jobs", frozen=True):
    """List jobs by number."""

    after: int = 0
    """Only jobs with a larger number."""
    count: int = 100
    state: str = ""
    """Only jobs in this state."""


class DescribeJobType(QueryFor[JobTypeView], tag="describe-job-type", frozen=True):
    """Return the definition and the totals of a job type."""

    job_type: str


class ListJobTypes(QueryFor[JobTypesListed], tag="list-job-types", frozen=True):
    """List job types and topics."""


class ListSchedules(QueryFor[SchedulesListed], tag="list-schedules", frozen=True):
    """List schedules by name."""

    after: str = ""
    count: int = 100
    namespace: str = ""
