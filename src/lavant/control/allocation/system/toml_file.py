"""A system as a TOML file: topics, job types, and the goal. Errors name the line.

rates_per = "minute"            # or "second", "hour": the unit of all rates in the file; times are in seconds
model = "refined"               # or "paper": Eq. 2 without Whitt's refinement

[[topic]]
name = "A"
service_rate = 4.2              # of one consumer
service_scv = 0.33              # squared coefficient of variation, 1 by default
cost = 1.0                      # of each consumer; [1, 1, 2] one by one; {price = 1, exponent = 1.5}
consumers_min = 1
consumers_max = 20
value = 1.0                     # of a request that waits here

[[job]]
name = "1"
arrival_rate = 3.0
arrival_scv = 0.33
route = ["A", "B", "D"]         # or tasks, for jobs that fork and join:
# tasks.read = {topic = "A"}
# tasks.file = {topic = "D", after = ["read"]}

[goal]
response_s = 50                 # with percentile = 0.95 and job = "1", if wanted; or else
# budget = 5                    # what may be spent on top of the least allocation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from lavant.control.allocation.system.costs import Cost, Linear, Power, Prices
from lavant.control.allocation.system.system import Budget, Goal, Limits, System, Target
from lavant.control.allocation.system.what_if import changed
from lavant.core.validation.toml_file import Path, TomlFile
from lavant.models.network import ModelJobType, ModelTask, Network, Topic, refuse_twice

SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Rising(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    price: Positive
    exponent: Positive


class _Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    service_rate: Positive
    service_scv: NotNegative = 1.0
    value: NotNegative = 1.0
    cost: Positive | list[Positive] | _Rising = 1.0
    consumers_min: Count = 1
    consumers_max: Count = 1000


class _Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    after: list[str] = []


class _Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arrival_rate: Positive
    arrival_scv: NotNegative = 1.0
    value: NotNegative = 1.0
    route: list[str] | None = None
    tasks: dict[str, _Task] | None = None


class _Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    response_s: Positive | None = None
    percentile: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    job: str | None = None
    budget: NotNegative | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: Annotated[list[_Topic], msgspec.Meta(min_length=1)]
    job: Annotated[list[_Job], msgspec.Meta(min_length=1)]
    goal: _Goal | None = None
    rates_per: Literal["second", "minute", "hour"] = "second"
    model: Literal["refined", "paper"] = "refined"


_CHOICES = {"rates_per": "second, minute or hour", "model": "refined or paper"}


class SystemFile:
    """The contents of a file: the system and the goal."""

    def __init__(self, text: str, *, name: str, tables: dict[str, Any] | None = None, remark: str = "") -> None:
        self._toml = TomlFile(text, name=name, tables=tables, remark=remark)
        self._file = self._toml.converted(_File, choices=_CHOICES)
        self.system = self._system()
        self.goal = self._goal()

    @property
    def tables(self) -> dict[str, Any]:
        return self._toml.tables

    @property
    def rates_per(self) -> str:
        """The unit of the file's rates."""
        return self._file.rates_per

    def with_changes(self, changes: Sequence[str]) -> SystemFile:
        """The same file with other values, in the syntax of `what_if`."""
        tables = self.tables
        for change in changes:
            tables = changed(tables, change)
        remark = f" (with {', '.join(changes)})" if changes else ""
        return SystemFile(self._toml.text, name=self._toml.name, tables=tables, remark=remark)

    def place(self, *path: str | int) -> str:
        """File and line of a value, for errors."""
        return self._toml.place(*path)

    def _system(self) -> System:
        rate_s = SECONDS[self._file.rates_per]
        topics: list[Topic] = []
        costs: list[Cost] = []
        limits: list[Limits] = []
        for number, table in enumerate(self._file.topic):
            with self._toml.located("topic", number):
                topics.append(
                    Topic(
                        name=table.name,
                        service_rate_per_s=table.service_rate / rate_s,
                        service_scv=table.service_scv,
                        value=table.value,
                    )
                )
            with self._toml.located("topic", number, "cost"):
                costs.append(_cost(table.cost))
            with self._toml.located("topic", number, "consumers_max"):
                limits.append(Limits(least=table.consumers_min, most=table.consumers_max))
        with self._toml.located("topic"):
            refuse_twice("topic", (topic.name for topic in topics))
        jobs = [self._job(number, table, rate_s) for number, table in enumerate(self._file.job)]
        with self._toml.located("job"):
            network = Network(topics=tuple(topics), jobs=tuple(jobs))
        refined = self._file.model == "refined"
        return System(network=network, costs=tuple(costs), limits=tuple(limits), refined=refined)

    def _job(self, number: int, table: _Job, rate_s: float) -> ModelJobType:
        if (table.route is None) == (table.tasks is None):
            self._toml.refuse(f"job type {table.name!r} needs a route or tasks, and not both", "job", number)
        common = {
            "name": table.name,
            "arrival_rate_per_s": table.arrival_rate / rate_s,
            "arrival_scv": table.arrival_scv,
            "value": table.value,
        }
        with self._toml.located("job", number, "route" if table.tasks is None else "tasks"):
            if table.tasks is None:
                assert table.route is not None
                job = ModelJobType.along(table.route, **common)  # type: ignore[arg-type]
            else:
                tasks = tuple(ModelTask(name, task.topic, tuple(task.after)) for name, task in table.tasks.items())
                job = ModelJobType(tasks=tasks, **common)  # type: ignore[arg-type]
        names = [topic.name for topic in self._file.topic]
        for task in job.tasks:
            if task.topic not in names:
                where: Path = ("route",) if table.tasks is None else ("tasks", task.name, "topic")
                self._toml.refuse(
                    f"job type {table.name!r} goes to topic {task.topic!r}, which is none of {', '.join(names)}",
                    *("job", number, *where),
                )
        return job

    def _goal(self) -> Goal | None:
        goal = self._file.goal
        if goal is None:
            return None
        if (goal.response_s is None) == (goal.budget is None):
            self._toml.refuse("a goal is a response_s or a budget, and not both", "goal")
        if goal.budget is not None:
            if goal.percentile is not None or goal.job is not None:
                self._toml.refuse("percentile and job belong to a response_s, not to a budget", "goal", "percentile")
            return Budget(additional=goal.budget)
        if goal.job is not None and goal.job not in self.system.network.job_names:
            names = ", ".join(self.system.network.job_names)
            self._toml.refuse(f"the goal is about job type {goal.job!r}, which is none of {names}", "goal", "job")
        assert goal.response_s is not None
        return Target(response_s=goal.response_s, percentile=goal.percentile, job=goal.job)


def _cost(given: float | list[float] | _Rising) -> Cost:
    if isinstance(given, _Rising):
        return Power(given.price, given.exponent)
    return Prices(tuple(given)) if isinstance(given, list) else Linear(float(given))
