"""Functions with typed parameters get them from the job's input."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from typing import Any

import pytest

from lavant import Task
from lavant.client.workers.task import result_of
from lavant.client.workers.typed import called_with_task
from lavant.core.errors import InvalidValue, PermanentFailure


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


def task_with(input: bytes) -> Task:
    return Task(job=1, job_type="j", name="t", topic="t", attempt=1, input=input, results={}, timeout_s=1.0)


def test_members_become_arguments_of_their_types() -> None:
    def resize(file: str, size: Size, task: Task, quality: float = 0.5) -> tuple[Any, ...]:
        return file, size, quality, task.job

    call = called_with_task(resize)
    assert call(task_with(b'{"file": "a.png", "size": {"width": 3}, "more": 1}')) == ("a.png", Size(3), 0.5, 1)


def test_a_coroutine_function_stays_one() -> None:
    async def double(n: int) -> int:
        return 2 * n

    call = called_with_task(double)
    assert inspect.iscoroutinefunction(call)
    assert asyncio.run(call(task_with(b'{"n": 4}'))) == 8


def test_a_function_of_the_task_is_called_as_before() -> None:
    def annotated(task: Task) -> bytes:
        return task.input

    def plain(task):  # type: ignore[no-untyped-def]
        return task.input

    for function in (annotated, plain):
        assert called_with_task(function) is function


@pytest.mark.parametrize("input", [b"", b"{}", b"[]", b'{"n": "four"}', b"\xff"])
def test_an_input_that_does_not_fit_fails_for_good(input: bytes) -> None:
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(PermanentFailure, match=r"double\(n: .int.\)"):
        called_with_task(double)(task_with(input))


def test_an_empty_input_gives_the_defaults() -> None:
    def double(n: int = 2) -> int:
        return 2 * n

    assert called_with_task(double)(task_with(b"")) == 4


def test_parameters_without_a_name_in_json_are_refused_when_the_worker_starts() -> None:
    def many(*numbers: int) -> None: ...
    def both(a: int, /, b: int) -> None: ...
    def unknown(a: int, b: Nothing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (many, both, unknown):
        with pytest.raises(InvalidValue, match=function.__name__):
            called_with_task(function)


def test_values_are_sent_as_json() -> None:
    assert result_of(Size(2)).body == b'{"width":2,"height":1}'
    assert result_of([1, 2]).body == b"[1,2]"
    with pytest.raises(InvalidValue, match="returned int"):
        result_of(5)
