"""Definitions of job types: tasks, their topics, and which follows which. Values only.

Nguyen and Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems: A Performance Modeling-based
Approach", Section II: a job is a directed acyclic graph of tasks, a topic is the queue of one kind of work with its
consumers. A job may visit a topic more than once (A → D → D), so tasks have names of their own, and several may use the
same topic.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lavant.broker.protocol.queue_config import DAY_MS, DELAY_MS_MAX, MINUTE_MS, SECOND_MS

TOPICS_MAX = 1000
JOB_TYPES_MAX = 1000
TASKS_MAX = 64
"""Each is one bit of an integer in snapshots."""
NEXT_MAX = 1000
"""Arrows of one job type."""
NAME_CHARACTERS_MAX = 64
ATTEMPTS_MAX = 20
TASK_TIMEOUT_MS_MAX = DAY_MS // 2
JOB_TIMEOUT_MS_MAX = 7 * DAY_MS
"""No message of a job may be older than the retention of its queue, 14 days, or a task would be lost."""
BACKOFF_MS_MAX = DELAY_MS_MAX


def queue_of(topic: str) -> str:
    """The queue of a topic's tasks."""
    return f"topic.{topic}"


def letters_of(topic: str) -> str:
    """The queue of a topic's tasks that were tried too often."""
    return f"dead.{topic}"


Join: TypeAlias = Literal["all", "any"]
OnFailure: TypeAlias = Literal["fail", "continue"]


class NextTask(msgspec.Struct, frozen=True, array_like=True):
    """An arrow to a following task."""

    task: str
    when: str = ""
    """A filter on the attributes of the result; without one, the task always follows."""


class TaskDefinition(msgspec.Struct, frozen=True, array_like=True):
    name: str
    topic: str
    next: tuple[NextTask, ...] = ()
    join: Join = "all"
    """Of several incoming arrows, all must have been taken, or any. The task starts when all are decided."""
    attempts: int = 3
    timeout_ms: int = 5 * MINUTE_MS
    """Per attempt, from when a worker leases it. The worker may extend it."""
    backoff_ms: int = SECOND_MS
    """Between the first attempt and the second; doubled for each further one."""
    backoff_ms_max: int = MINUTE_MS
    on_failure: OnFailure = "fail"
    """After the last failed attempt, the job fails, or continues as if the task had an empty result."""

    def backoff_after_ms(self, attempt: int) -> int:
        """Delay after that attempt, counted from 1.

        >>> [TaskDefinition("fit", "B").backoff_after_ms(attempt) for attempt in (1, 2, 3, 9)]
        [1000, 2000, 4000, 60000]
        """
        return min(self.backoff_ms << (attempt - 1), self.backoff_ms_max)


class JobDefinition(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """Of the job type."""
    start: tuple[str, ...]
    """The tasks with which a job begins."""
    tasks: tuple[TaskDefinition, ...]
    timeout_ms: int = DAY_MS
    """A job that has not ended by then fails."""


class Workflows(msgspec.Struct, frozen=True, array_like=True):
    """The contents of one file."""

    topics: tuple[str, ...]
    jobs: tuple[JobDefinition, ...]
