"""Job types written in Python, beside workflow files in TOML.

>>> image = Workflow("image", timeout_s=3600)
>>> load = image.task("load", attempts=5)
>>> halves = [image.task(name, topic="fit", after=load) for name in ("left", "right")]
>>> join = image.task("join", topic="draw", after=halves)
>>> publish = image.task("publish", after=join.when("score >= 0.8"))
>>> workflows_of([image]).topics
('draw', 'fit', 'load', 'publish')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.workflows.definitions.definition import (
    JOB_TIMEOUT_MS_MAX,
    JobDefinition,
    NextTask,
    TaskDefinition,
    Workflows,
)
from lavant.broker.workflows.definitions.validation import TASK_RANGES, check
from lavant.client.arguments import check_count, check_text
from lavant.core.errors import InvalidValue
from lavant.core.seconds import check_seconds, in_milliseconds

After: TypeAlias = "WorkflowTask | Arrow | Sequence[WorkflowTask | Arrow]"


class Arrow:
    """An arrow from a task to one that follows it, perhaps under a condition. `WorkflowTask.when` makes one."""

    def __init__(self, source: WorkflowTask, when: str = "") -> None:
        self.source, self.condition = source, when


class WorkflowTask:
    """A task of a `Workflow`; `Workflow.task` makes one."""

    def __init__(self, workflow: Workflow, name: str, topic: str, options: dict[str, Any]) -> None:
        self.workflow, self.name, self.topic, self.options = workflow, name, topic, options
        self.arrows: list[NextTask] = []
        self.is_start = True

    def when(self, condition: str) -> Arrow:
        """The arrow that is taken if the attributes of this task's result match the filter `condition`."""
        return Arrow(self, condition)

    def __repr__(self) -> str:
        return f"WorkflowTask({self.name!r})"


class Workflow:
    """A job type: tasks, and which follows which. Pass it to `Client.define_jobs`."""

    def __init__(self, name: str, *, timeout_s: float | None = None) -> None:
        """A job that has not ended after `timeout_s`, a day by default, fails."""
        check_text("the name of a job type", name)
        self.name = name
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s, 1 / SECOND_MS, JOB_TIMEOUT_MS_MAX / SECOND_MS)
        self._timeout_ms = in_milliseconds(timeout_s)
        self._tasks: dict[str, WorkflowTask] = {}

    def task(
        self,
        name: str,
        *,
        topic: str = "",
        after: After = (),
        join: Literal["all", "any"] = "all",
        attempts: int | None = None,
        timeout_s: float | None = None,
        backoff_s: float | None = None,
        backoff_s_max: float | None = None,
        on_failure: Literal["fail", "continue"] = "fail",
    ) -> WorkflowTask:
        """Adds a task of a topic, by default that of its own name. It follows the tasks in `after`, and starts the job
        if there are none. Of several, all must have led here, or with `join="any"` one of them. An attempt may take
        `timeout_s`; a failed one is repeated, up to `attempts` times, after `backoff_s`, doubled each time up to
        `backoff_s_max`. After the last, the job fails, or goes on with `on_failure="continue"`."""
        check_text("the name of a task", name)
        check_text("topic", topic)
        if name in self._tasks:
            raise InvalidValue(f"job type {self.name!r} has a task {name!r} already; give this one another name")
        times = {"timeout_s": timeout_s, "backoff_s": backoff_s, "backoff_s_max": backoff_s_max}
        given: dict[str, Any] = {"join": join, "on_failure": on_failure}
        for field, seconds in times.items():
            if seconds is not None:
                stored = field.replace("_s", "_ms")
                least_ms, most_ms = TASK_RANGES[stored]
                check_seconds(field, seconds, least_ms / SECOND_MS, most_ms / SECOND_MS)
                given[stored] = round(seconds * SECOND_MS)
        if attempts is not None:
            check_count("attempts", attempts, 1)
            given["attempts"] = attempts
        task = WorkflowTask(self, name, topic if topic else name, given)
        for arrow in _arrows(after):
            if arrow.source.workflow is not self:
                raise InvalidValue(f"task {arrow.source.name!r} is of another job type than {name!r}")
            arrow.source.arrows.append(NextTask(name, arrow.condition))
            task.is_start = False
        self._tasks[name] = task
        return task

    @property
    def topics(self) -> list[str]:
        """The topics of its tasks, sorted."""
        return sorted({task.topic for task in self._tasks.values()})

    def definition(self) -> JobDefinition:
        """The job type as a value, as it is sent to the server."""
        tasks = tuple(
            TaskDefinition(each.name, each.topic, tuple(each.arrows), **each.options) for each in self._tasks.values()
        )
        start = tuple(each.name for each in self._tasks.values() if each.is_start)
        timeout = {} if self._timeout_ms is None else {"timeout_ms": self._timeout_ms}
        return JobDefinition(self.name, start, tasks, **timeout)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {list(self._tasks)})"


def workflows_of(written: Iterable[Workflow]) -> Workflows:
    """Job types with their topics, checked as the server does."""
    jobs = list(written)
    topics = sorted({topic for each in jobs for topic in each.topics})
    workflows = Workflows(tuple(topics), tuple(each.definition() for each in jobs))
    check(workflows)
    return workflows


def _arrows(after: After) -> list[Arrow]:
    several = [after] if isinstance(after, WorkflowTask | Arrow) else list(after)
    return [each if isinstance(each, Arrow) else Arrow(each) for each in several]
