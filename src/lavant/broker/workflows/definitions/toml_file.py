"""Reads job types from a TOML file.

topics = ["scan", "fit", "draw"]

[jobs.picture]
start = "load"

[jobs.picture.tasks]
load = { topic = "scan", next = ["model", { task = "sketch", when = "pixels < 1000" }] }
model = { topic = "fit", next = "picture", attempts = 5, timeout_ms = 60_000 }
sketch = { topic = "draw" }
picture = { topic = "draw" }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from lavant.broker.workflows.definitions.definition import (
    JobDefinition,
    Join,
    NextTask,
    OnFailure,
    TaskDefinition,
    Workflows,
)
from lavant.broker.workflows.definitions.validation import check
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.validation.choices import with_choices

FILE_CHARACTERS_MAX = 4 << 20

_T = TypeVar("_T")


class _Next(msgspec.Struct, forbid_unknown_fields=True):
    task: str
    when: str = ""


class _Task(msgspec.Struct, forbid_unknown_fields=True):
    """As written in the file; omitted fields have the defaults of `TaskDefinition`."""

    topic: str
    next: str | list[str | _Next] = []
    join: Join | msgspec.UnsetType = msgspec.UNSET
    attempts: int | msgspec.UnsetType = msgspec.UNSET
    timeout_ms: int | msgspec.UnsetType = msgspec.UNSET
    backoff_ms: int | msgspec.UnsetType = msgspec.UNSET
    backoff_ms_max: int | msgspec.UnsetType = msgspec.UNSET
    on_failure: OnFailure | msgspec.UnsetType = msgspec.UNSET


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    start: str | list[str]
    tasks: dict[str, Any]
    timeout_ms: int | msgspec.UnsetType = msgspec.UNSET


class _File(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str]
    jobs: dict[str, Any]


def read_workflows(text: str) -> Workflows:
    """Read and validate the job types in a TOML text.

    >>> read_workflows('''
    ... topics = ["C", "D"]
    ... jobs.simple = { start = "first", tasks.first = { topic = "C" } }
    ... ''').jobs[0].tasks[0].topic
    'C'
    """
    if len(text) > FILE_CHARACTERS_MAX:
        raise LimitExceeded(
            f"the definitions have {len(text)} characters, at most {FILE_CHARACTERS_MAX} are allowed; use several files"
        )
    try:
        return convert_workflows(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidValue(f"the definitions are not valid TOML: {error}") from None
    except RecursionError:
        raise InvalidValue("the definitions are nested too deeply; four levels are enough") from None


def convert_workflows(value: Mapping[str, Any]) -> Workflows:
    """The same from a decoded TOML or JSON value."""
    file = _convert(value, _File, "the definitions")
    workflows = Workflows(tuple(file.topics), tuple(_job(name, job) for name, job in file.jobs.items()))
    check(workflows)
    return workflows


def _job(name: str, value: object) -> JobDefinition:
    job = _convert(value, _Job, f"job type {name!r}")
    start = (job.start,) if isinstance(job.start, str) else tuple(job.start)
    tasks = tuple(_task(name, task, each) for task, each in job.tasks.items())
    return JobDefinition(name, start, tasks, **_given(job, ("timeout_ms",)))


def _task(job: str, name: str, value: object) -> TaskDefinition:
    task = _convert(value, _Task, f"task {name!r} of job type {job!r}")
    written = [task.next] if isinstance(task.next, str) else task.next
    arrows = tuple(NextTask(each) if isinstance(each, str) else NextTask(each.task, each.when) for each in written)
    return TaskDefinition(name, task.topic, arrows, **_given(task, TaskDefinition.__struct_fields__[3:]))


def _given(struct: msgspec.Struct, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: value for field in fields if (value := getattr(struct, field)) is not msgspec.UNSET}


def _convert(value: object, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{what} cannot be read: {with_choices(error, kind)}") from None
