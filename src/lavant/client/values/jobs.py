"""Jobs with their timelines, and schedules. Points in time are in seconds since 1970."""

from __future__ import annotations

from lavant.broker.protocol import jobs as protocol
from lavant.broker.protocol.jobs import Result
from lavant.client.values.mirror import Mirror
from lavant.core.publications.trace_context import NO_TRACE, TraceContext


class AttemptView(Mirror[protocol.AttemptView], frozen=True):
    """One attempt at a task: when it was queued, started and ended."""

    queued_s: float
    started_s: float
    """0 if no worker has leased it yet."""
    worker: str
    ended_s: float
    outcome: str
    reason: str


class TaskView(Mirror[protocol.TaskView], frozen=True):
    """A task of a job, and the attempts at it."""

    name: str
    topic: str
    state: str
    attempts: list[AttemptView]


class JobView(Mirror[protocol.JobView], frozen=True):
    """A job and its timeline."""

    number: int
    job_type: str
    name: str
    state: str
    """`running`, `completed`, `failed` or `cancelled`."""
    reason: str
    submitted_s: float
    ended_s: float
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


class JobSummary(Mirror[protocol.JobSummary], frozen=True):
    """A job in a list."""

    number: int
    job_type: str
    name: str
    state: str
    submitted_s: float
    ended_s: float


class ScheduleState(Mirror[protocol.ScheduleState], frozen=True):
    """A schedule, when it fires next, and what became of it the last time."""

    name: str
    cron: str
    """Five fields, in UTC; empty if it has an interval."""
    interval_s: float
    job_type: str
    """The type of the job that it submits; empty if it sends a message."""
    queue: str
    body: bytes
    """The input of the job, or the body of the message."""
    created_s: float
    next_s: float
    fired: int = 0
    """How often it has fired."""
    last_s: float = 0.0
    """When it last fired; 0 if never."""
    last_error: str = ""
    """Why the last one came to nothing: the queue is gone, say."""
    namespace: str = ""
    """Of the key that added it."""
