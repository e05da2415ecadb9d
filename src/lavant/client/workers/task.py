"""What the function of a task is given, and what it may give back."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.jobs import Result
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import AttributeValue

Made: TypeAlias = "Result | bytes | str | dict[str, AttributeValue] | None"
"""What a function may return: a body, attributes for the conditions of the workflow, or both as a `Result`."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task of a job. (`job`, `name`, `attempt`) names it for good."""

    job: int
    job_type: str
    name: str
    """In the job; a topic may be visited by several tasks."""
    topic: str
    attempt: int
    """Counted from 1. Work may be done twice: an attempt before this one may have got far."""
    input: bytes
    """That of the job."""
    results: dict[str, Result]
    """Of the tasks before, by their names."""
    timeout_s: float
    """How long the attempt may take, from now on."""

    @property
    def key(self) -> str:
        """The same in each attempt, and of no other task: for what must be done once outside."""
        return f"{self.job}/{self.name}"

    def json(self) -> Any:
        """The job's input, if it is JSON."""
        return msgspec.json.decode(self.input)

    def __str__(self) -> str:
        return f"attempt {self.attempt} at task {self.name!r} of job {self.job}"


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
    raise InvalidValue(
        f"a task's function returned {type(made).__name__}; return bytes, text, a dict of attributes, a Result or None"
    )
