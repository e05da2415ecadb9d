"""An open network of stations with several job types, the input of the allocation paper's model.

P. Nguyen, K. Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems", Section III. Symbols, mapped once:

| paper  | here                     |                                                              |
| ------ | ------------------------ | ------------------------------------------------------------ |
| μ_j    | `service_rate_per_s`     | tasks that one consumer of topic j does in a second          |
| cs²_j  | `service_scv`            | squared coefficient of variation of its service times        |
| ν_j    | `value`                  | weight of a waiting request, for a topic and for a job type  |
| λ_i    | `arrival_rate_per_s`     | jobs of type i a second                                      |
| ca²_i  | `arrival_scv`            | squared coefficient of variation of the times between them   |
| m_j    | `consumers`              | of topic j; not part of the network, but what is chosen      |

A job is a graph of tasks. A route, in which a topic may occur more than once, is the special case of a chain; the
paper's indicator "goes through topic j" does not count visits, tasks do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import msgspec

from lavant.core.errors import InvalidValue, LimitExceeded

TOPICS_MAX = 1_000
TASKS_MAX = 10_000
"""Of all job types together."""
SCV_MAX = 1_000.0
RATE_PER_S_MAX = 1e9


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A station: a queue, and consumers that compete for its contents."""

    name: str
    service_rate_per_s: float
    service_scv: float = 1.0
    value: float = 1.0

    def __post_init__(self) -> None:
        what = f"of topic {self.name!r}"
        require_rate(f"service_rate_per_s {what}", self.service_rate_per_s)
        require_scv(f"service_scv {what}", self.service_scv)
        require_value(f"value {what}", self.value)


class ModelTask(msgspec.Struct, frozen=True):
    """One visit of a job to a topic; it begins when all tasks that it comes `after` are done."""

    name: str
    topic: str
    after: tuple[str, ...] = ()


class ModelJobType(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Jobs with the same tasks. A fork is two tasks after one, a join is one task after two.

    >>> fork = ModelJobType(name="report", arrival_rate_per_s=0.1, tasks=(
    ...     ModelTask("read", "A"), ModelTask("text", "B", ("read",)), ModelTask("image", "C", ("read",)),
    ...     ModelTask("file", "D", ("text", "image"))))
    >>> fork.is_route, ModelJobType.along(["A", "D", "D"], name="2", arrival_rate_per_s=0.05).is_route
    (False, True)
    """

    name: str
    arrival_rate_per_s: float
    arrival_scv: float = 1.0
    value: float = 1.0
    tasks: tuple[ModelTask, ...]

    @classmethod
    def along(
        cls, route: Sequence[str], *, name: str, arrival_rate_per_s: float, arrival_scv: float = 1.0, value: float = 1.0
    ) -> ModelJobType:
        """Jobs whose tasks run one after the other; task n is named "n:topic", from 1."""
        names = [f"{number}:{topic}" for number, topic in enumerate(route, start=1)]
        after: list[tuple[str, ...]] = [(), *((name,) for name in names[:-1])]
        tasks = tuple(map(ModelTask, names, route, after))
        return cls(name=name, arrival_rate_per_s=arrival_rate_per_s, arrival_scv=arrival_scv, value=value, tasks=tasks)

    def __post_init__(self) -> None:
        what = f"of job type {self.name!r}"
        require_rate(f"arrival_rate_per_s {what}", self.arrival_rate_per_s)
        require_scv(f"arrival_scv {what}", self.arrival_scv)
        require_value(f"value {what}", self.value)
        if not self.tasks:
            raise InvalidValue(f"job type {self.name!r} has no tasks; give it at least one")
        refuse_twice(f"task {what}", (task.name for task in self.tasks))
        names = {task.name for task in self.tasks}
        for task in self.tasks:
            for name in task.after:
                if name not in names:
                    raise InvalidValue(f"task {task.name!r} {what} comes after {name!r}, which is not one of its tasks")
        self._refuse_circles()

    @cached_property
    def is_route(self) -> bool:
        """Whether tasks never run in parallel."""
        chain = [(), *((task.name,) for task in self.tasks[:-1])]
        return [task.after for task in self.tasks] == chain

    @cached_property
    def depths(self) -> dict[str, int]:
        """The number of predecessors of each task on the longest path."""
        after = {task.name: task.after for task in self.tasks}
        depth: dict[str, int] = {}
        for name in TopologicalSorter(after).static_order():
            depth[name] = 1 + max((depth[before] for before in after[name]), default=-1)
        return depth

    def _refuse_circles(self) -> None:
        try:
            TopologicalSorter({task.name: task.after for task in self.tasks}).prepare()
        except CycleError as error:
            circle = " → ".join(error.args[1])
            raise InvalidValue(
                f"tasks of job type {self.name!r} have a cycle: {circle}; a job that returns to a topic has a "
                "second task there"
            ) from None


class Network(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Topics and the job types that visit them."""

    topics: tuple[Topic, ...]
    jobs: tuple[ModelJobType, ...]

    def __post_init__(self) -> None:
        if not self.topics or not self.jobs:
            raise InvalidValue(f"a network has topics and job types, got {len(self.topics)} and {len(self.jobs)}")
        tasks = sum(len(job.tasks) for job in self.jobs)
        if len(self.topics) > TOPICS_MAX or tasks > TASKS_MAX:
            raise LimitExceeded(
                f"a network of {len(self.topics)} topics and {tasks} tasks, at most {TOPICS_MAX} and {TASKS_MAX} "
                "are allowed; model its parts"
            )
        refuse_twice("topic", self.topic_names)
        refuse_twice("job type", self.job_names)
        for job in self.jobs:
            for task in job.tasks:
                if task.topic not in self.topic_names:
                    raise InvalidValue(
                        f"task {task.name!r} of job type {job.name!r} goes to topic {task.topic!r}; "
                        f"there are {', '.join(self.topic_names)}"
                    )

    @cached_property
    def topic_names(self) -> tuple[str, ...]:
        return tuple(topic.name for topic in self.topics)

    @cached_property
    def job_names(self) -> tuple[str, ...]:
        return tuple(job.name for job in self.jobs)

    @cached_property
    def arrival_rate_per_s(self) -> float:
        """Jobs of all types together."""
        return math.fsum(job.arrival_rate_per_s for job in self.jobs)

    @cached_property
    def topic_rates_per_s(self) -> tuple[float, ...]:
        """λ̃_j (Eq. 3): tasks of all job types a second at each topic, each visit counted."""
        visits = [(task.topic, job.arrival_rate_per_s) for job in self.jobs for task in job.tasks]
        return tuple(math.fsum(rate for topic, rate in visits if topic == name) for name in self.topic_names)

    @cached_property
    def offered_load(self) -> tuple[float, ...]:
        """λ̃_j / μ_j: the mean number of busy consumers of each topic."""
        pairs = zip(self.topic_rates_per_s, self.topics, strict=True)
        return tuple(rate / topic.service_rate_per_s for rate, topic in pairs)

    def with_arrival_rates(self, rates_per_s: Sequence[float]) -> Network:
        """The same network under another load; a job type without arrivals keeps a minimal rate."""
        jobs = [
            msgspec.structs.replace(job, arrival_rate_per_s=max(float(rate), RATE_PER_S_MIN))
            for job, rate in zip(self.jobs, rates_per_s, strict=True)
        ]
        return Network(topics=self.topics, jobs=tuple(jobs))


RATE_PER_S_MIN = 1e-9
"""One in thirty years: a rate of 0 has no response time."""


def require_rate(name: str, value: float) -> None:
    if not RATE_PER_S_MIN <= value <= RATE_PER_S_MAX:
        raise InvalidValue(f"{name} must be positive, between {RATE_PER_S_MIN:g} and {RATE_PER_S_MAX:g}, got {value}")


def require_scv(name: str, value: float) -> None:
    if not 0 <= value <= SCV_MAX:
        raise InvalidValue(f"{name} is a squared coefficient of variation, between 0 and {SCV_MAX:g}, got {value}")


def require_value(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValue(f"{name} must be a number from 0 on, got {value}")


def refuse_twice(kind: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidValue(f"{kind} {name!r} occurs {count} times; names are unique")
