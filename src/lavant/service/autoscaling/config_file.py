"""The file of `lavant serve --resources`: the functions that do the tasks of each topic, and the goal.

Fields shared with `lavant plan` mean the same here. Arrivals are measured and routes come from the workflow, so neither
is in the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from lavant.broker.workflows.definitions.definition import Workflows
from lavant.broker.workflows.definitions.toml_file import convert_workflows, read_workflows
from lavant.control.allocation import (
    AllocationConfig,
    Budget,
    Caution,
    Goal,
    Hysteresis,
    Limits,
    Linear,
    ScheduleConfig,
    System,
    Target,
)
from lavant.core.errors import InvalidValue
from lavant.core.validation.choices import with_choices
from lavant.models.network import ModelJobType, ModelTask, Network, Topic
from lavant.service.autoscaling.monitor import MonitorConfig

FILE_BYTES_MAX = 4 << 20
SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
UNKNOWN_RATE_PER_S = 1.0
"""Until services are measured, if the file gives no rate."""

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class TopicTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    worker: str = ""
    """MODULE[:FUNCTION] or FILE.py[:FUNCTION]; for worker processes."""
    deployment: str = ""
    """Name of its Deployment, if it does not follow `kubernetes.deployment`."""
    service_rate: Positive | None = None
    """A first guess, until enough services are measured."""
    service_scv: NotNegative = 1.0
    value: NotNegative = 1.0
    cost: Positive = 1.0
    consumers_min: Count = 1
    consumers_max: Count = 100


class GoalTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    response_s: Positive | None = None
    percentile: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    job: str | None = None
    budget: NotNegative | None = None
    act_above_s: Positive | None = None
    """A budget is spent only while the response would be longer than this without it."""


class LoopTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of the loop; the defaults suit tasks of seconds."""

    look_s: Positive = 1.0
    every_s: Positive = 15.0
    pause_s: NotNegative = 5.0
    window_s: Positive = 120.0
    recent_s: Positive = 5.0
    standard_errors: Positive = 4.0
    scale_in_s: NotNegative = 180.0
    drain_s: Positive = 30.0


class WorkersTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str = ""
    """Where workers get tasks, if not at the server's own address: another address of it, or RabbitMQ (amqp://…)."""
    ca_file: str = ""
    lease_s: Annotated[float, msgspec.Meta(ge=0.5, le=3600)] = 30.0
    drain_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 25.0
    silence_s: Annotated[float, msgspec.Meta(ge=3, le=86400)] = 30.0


class KubernetesTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    namespace: str = ""
    """Default: that of the pod or of the kubeconfig."""
    deployment: str = "lavant-worker-{topic}"
    kubeconfig: str = ""
    """Not needed in a pod."""
    context: str = ""
    force: bool = False
    """Take over the number of replicas from another field manager."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: Annotated[list[TopicTable], msgspec.Meta(min_length=1)]
    goal: GoalTable
    workflow: str | dict[str, Any]
    """The path of a file, or a table with its contents."""
    allocator: str = "processes"
    policy: str | None = None
    rates_per: Literal["second", "minute", "hour"] = "second"
    model: Literal["refined", "paper"] = "refined"
    loop: LoopTable = LoopTable()
    workers: WorkersTable = WorkersTable()
    kubernetes: KubernetesTable = KubernetesTable()


class ResourcesFile:
    """A file, read and validated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name
        self._file = self._read()
        self.directory = path.parent.resolve()
        self.workflows = self._workflows()
        self.topics = {table.name: table for table in self._file.topic}
        self._check_topics()
        self.allocator = self._file.allocator
        self.loop, self.workers, self.kubernetes = self._file.loop, self._file.workers, self._file.kubernetes
        self.system = self._system()
        self.goal = self._goal()

    def allocation(self) -> AllocationConfig:
        default = "min-cost" if isinstance(self.goal, Target) else "min-time"
        return AllocationConfig(
            allocator=default if self._file.policy is None else self._file.policy,
            goal=self.goal,
            act_above_s=self._file.goal.act_above_s,
            hysteresis=Hysteresis(scale_in_ms=round(self.loop.scale_in_s * 1000)),
            caution=Caution(drain_s=self.loop.drain_s),
        )

    def schedule(self) -> ScheduleConfig:
        goal = self._file.goal
        missed_above_s = goal.act_above_s if goal.percentile is not None or goal.job else goal.response_s
        return ScheduleConfig(
            every_ms=round(self.loop.every_s * 1000),
            pause_ms=round(min(self.loop.pause_s, self.loop.every_s) * 1000),
            missed_above_s=goal.act_above_s if missed_above_s is None else missed_above_s,
        )

    def monitor(self) -> MonitorConfig:
        loop = self.loop
        return MonitorConfig(window_s=loop.window_s, recent_s=loop.recent_s, standard_errors=loop.standard_errors)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> _File:
        try:
            data = self._path.read_bytes()
            if len(data) > FILE_BYTES_MAX:
                raise InvalidValue(f"{self._path}: a file has at most {FILE_BYTES_MAX} bytes, this has {len(data)}")
            return msgspec.convert(tomllib.loads(data.decode()), _File)
        except OSError as error:
            raise InvalidValue(f"cannot read {self._path}: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise InvalidValue(f"{self._path}: {with_choices(error, _File)}") from None

    def _workflows(self) -> Workflows:
        given = self._file.workflow
        if not isinstance(given, str):
            return convert_workflows(given)
        path = self.directory / given
        try:
            return read_workflows(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidValue(f"{self._path}: the workflow {path} cannot be read: {error}") from None

    def _check_topics(self) -> None:
        if len(self.topics) < len(self._file.topic):
            raise InvalidValue(f"{self._path}: a topic is there twice; each has one table")
        visited = {task.topic for job in self.workflows.jobs for task in job.tasks}
        for name in sorted(visited - set(self.topics)):
            raise InvalidValue(f"{self._path}: jobs go to topic {name!r}, which has no [[topic]] with a worker")
        for name in sorted(set(self.topics) - visited):
            raise InvalidValue(f"{self._path}: no job goes to topic {name!r}; leave its [[topic]] out")

    def _system(self) -> System:
        rate_s = SECONDS[self._file.rates_per]
        topics = tuple(
            Topic(
                name=table.name,
                service_rate_per_s=UNKNOWN_RATE_PER_S if table.service_rate is None else table.service_rate / rate_s,
                service_scv=table.service_scv,
                value=table.value,
            )
            for table in self._file.topic
        )
        try:
            return System(
                network=Network(topics=topics, jobs=tuple(map(_job_type, self.workflows.jobs))),
                costs=tuple(Linear(table.cost) for table in self._file.topic),
                limits=tuple(Limits(least=table.consumers_min, most=table.consumers_max) for table in self._file.topic),
                refined=self._file.model == "refined",
            )
        except InvalidValue as error:
            raise InvalidValue(f"{self._path}: {error}") from None

    def _goal(self) -> Goal:
        goal = self._file.goal
        if (goal.response_s is None) == (goal.budget is None):
            raise InvalidValue(f"{self._path}: a goal is a response_s or a budget, and not both")
        if goal.budget is not None:
            if goal.percentile is not None or goal.job is not None:
                raise InvalidValue(f"{self._path}: percentile and job belong to a response_s, not to a budget")
            return Budget(additional=goal.budget)
        if goal.job is not None and goal.job not in self.system.network.job_names:
            names = ", ".join(self.system.network.job_names)
            raise InvalidValue(f"{self._path}: the goal is about job type {goal.job!r}, which is none of {names}")
        assert goal.response_s is not None
        return Target(response_s=goal.response_s, percentile=goal.percentile, job=goal.job)


def _job_type(job: Any) -> ModelJobType:
    """Every task counts as a visit, conditional ones too: the model rather allocates too many consumers."""
    before: dict[str, list[str]] = {task.name: [] for task in job.tasks}
    for task in job.tasks:
        for arrow in task.next:
            before[arrow.task].append(task.name)
    tasks = tuple(ModelTask(task.name, task.topic, tuple(dict.fromkeys(before[task.name]))) for task in job.tasks)
    return ModelJobType(name=job.name, arrival_rate_per_s=1e-9, tasks=tasks)
