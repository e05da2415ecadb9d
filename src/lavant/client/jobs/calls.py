"""What applications can ask about jobs. All may be repeated: a submission has a name, so it is done once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.jobs import (
    CancelJob,
    Cancelled,
    DefineJobs,
    DescribeJob,
    JobsListed,
    JobSubmitted,
    JobView,
    ListJobs,
    SubmitJob,
)
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.client.connection.calls import Call, done, expect
from lavant.core.errors import InvalidValue

Input: TypeAlias = "bytes | str | dict[str, Any] | list[Any]"
"""Dicts and lists are sent as JSON."""

FIRST_LOOK_S, LOOK_S_MAX = 0.02, 1.0


def define(source: Path | str) -> Call[None]:
    """From a TOML file, or from its text: that has more than one line."""
    is_text = isinstance(source, str) and "\n" in source
    try:
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"cannot read the definitions of jobs in {source}: {error}") from None
    return Call(DefineJobs(read_workflows(text)), done)


def submit(job_type: str, input: Input, name: str) -> Call[int]:
    """The job's number. Without a name it gets one by chance, so that it is not submitted twice when it is repeated."""
    unique = name if name else f"~{secrets.token_hex(8)}"
    return Call(SubmitJob(job_type, _bytes(input), unique), lambda answer: expect(answer, JobSubmitted).job)


def describe(job: int) -> Call[JobView]:
    return Call(DescribeJob(job), lambda answer: expect(answer, JobView))


def cancel(job: int) -> Call[bool]:
    """Whether it had not ended before."""
    return Call(CancelJob(job), lambda answer: expect(answer, Cancelled).is_new)


def listed(after: int, count: int, state: str) -> Call[JobsListed]:
    return Call(ListJobs(after, count, state), lambda answer: expect(answer, JobsListed))


def looks_s() -> Iterator[float]:
    """How long to wait before looking at a job again: short ones are noticed soon, long ones cost little."""
    pause_s = FIRST_LOOK_S
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, LOOK_S_MAX)


def _bytes(input: Input) -> bytes:
    if isinstance(input, str):
        return input.encode()
    return msgspec.json.encode(input) if isinstance(input, dict | list) else bytes(input)
