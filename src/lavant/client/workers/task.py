"""The argument of a task's function, and its possible results."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.jobs import Result, TaskAssignment
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.client.bodies import json_of, text_of
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

Made: TypeAlias = "Result | bytes | str | dict[str, AttributeValue] | list[Any] | msgspec.Struct | object | None"
"""The results of a function: a body, attributes for the conditions of the workflow, or both as a `Result`. Lists,
dataclasses and structs become a body in JSON."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task of a job. (`job`, `name`, `attempt`) is unique for all time."""

    job: int
    job_type: str
    name: str
    """The name in the job; several tasks may have the same topic."""
    topic: str
    attempt: int
    """The attempt number, from 1. An earlier attempt may have done part of the work."""
    input: bytes
    """The input of the job."""
    results: dict[str, Result]
    """Results of the preceding tasks, by their names."""
    timeout_s: float
    """The time limit of the attempt, from its start."""
    trace: TraceContext = NO_TRACE
    """The trace of the job; `trace.headers()` passes it on."""

    @property
    def key(self) -> str:
        """An idempotency key for other systems: the same in each attempt, and of no other task."""
        return f"{self.job}/{self.name}"

    def json(self, type: Any = Any) -> Any:
        """The job's input, decoded from JSON, as a value of `type`."""
        return json_of(self.input, type)

    def text(self) -> str:
        """The job's input as text."""
        return text_of(self.input)

    def __str__(self) -> str:
        return f"attempt {self.attempt} at task {self.name!r} of job {self.job}"


def task_of(assignment: TaskAssignment, topic: str) -> Task:
    """The task that a server has assigned, whatever way it came."""
    return Task(
        job=assignment.job,
        job_type=assignment.job_type,
        name=assignment.task,
        topic=topic,
        attempt=assignment.attempt,
        input=assignment.input,
        results=assignment.results,
        timeout_s=assignment.timeout_ms / SECOND_MS,
        trace=assignment.trace,
    )


def result_of(made: Made) -> Result:
    """
    >>> result_of("größer"), result_of({"score": 0.9})
    (Result(body=b'gr\\xc3\\xb6\\xc3\\x9fer', attributes={}), Result(body=b'', attributes={'score': 0.9}))
    """
    if isinstance(made, Result):
        return made
    if made is None:
        return Result()
    if isinstance(made, bytes | bytearray | memoryview):
        return Result(bytes(made))
    if isinstance(made, str):
        return Result(made.encode())
    if isinstance(made, dict):
        return Result(b"", made)
    if isinstance(made, list | msgspec.Struct) or dataclasses.is_dataclass(made):
        return Result(msgspec.json.encode(made))
    raise InvalidValue(
        f"a task's function returned {type(made).__name__}; return bytes, text, a dict of attributes, a list, "
        "dataclass or msgspec.Struct (sent as JSON), a Result or None"
    )
