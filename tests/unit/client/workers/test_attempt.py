"""One attempt: what is reported when the function returns, raises, takes too long, or is not wanted any more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.unit.client.workers.benches import FakeBackend, a_task, in_virtual_time, now_s

from lavant import PermanentFailure, Result, Task
from lavant.client.workers.attempt import attempt
from lavant.client.workers.functions import Handler
from lavant.core.errors import LimitExceeded, StorageFull, WorkerStuck


def attempted(function: Any, task: Task, backend: FakeBackend, lease_s: float = 30.0) -> None:
    in_virtual_time(attempt(task, Handler("A", function), backend, lease_s=lease_s))


@pytest.mark.parametrize(
    ("made", "result"),
    [
        (None, Result()),
        (b"pixels", Result(b"pixels")),
        (bytearray(b"pixels"), Result(b"pixels")),
        ("größer", Result("größer".encode())),
        ({"score": 0.9}, Result(b"", {"score": 0.9})),
        (Result(b"x", {"a": 1}), Result(b"x", {"a": 1})),
    ],
)
def test_what_a_function_returns_is_the_result(made: Any, result: Result) -> None:
    async def later(task: Task) -> Any:
        return made

    for function in (lambda task: made, later):
        backend = FakeBackend()
        attempted(function, a_task(7), backend)
        assert backend.completed == {7: result}
        assert not backend.failed


def test_a_function_that_returns_something_else_is_told_so() -> None:
    backend = FakeBackend()
    attempted(lambda task: 5, a_task(), backend)
    assert "returned int" in backend.failed[1][0]


@pytest.mark.parametrize(
    ("error", "reason", "is_final"),
    [
        (ValueError("no"), "ValueError: no", False),
        (PermanentFailure("never"), "PermanentFailure: never", True),
        (StopIteration("end"), "RuntimeError: StopIteration: end", False),
        (SystemExit(3), "RuntimeError: SystemExit: 3", False),
        (RuntimeError("x" * 5000), ("RuntimeError: " + "x" * 5000)[:2000], False),
    ],
)
def test_what_a_function_raises_is_the_reason(error: BaseException, reason: str, is_final: bool) -> None:
    def function(task: Task) -> None:
        raise error

    backend = FakeBackend()
    attempted(function, a_task(), backend)
    assert backend.failed == {1: (reason, is_final)}
    assert not backend.completed


def test_a_result_that_is_refused_is_not_tried_again() -> None:
    backend = FakeBackend()
    backend.refuses = LimitExceeded("too large")
    attempted(lambda task: b"x", a_task(), backend)
    assert backend.failed == {1: ("LimitExceeded: too large", True)}


def test_the_lease_is_kept_as_long_as_the_function_runs_but_never_beyond_its_time() -> None:
    async def function(task: Task) -> None:
        await asyncio.sleep(44)

    backend = FakeBackend()
    attempted(function, a_task(timeout_s=50), backend, lease_s=30)
    assert backend.extended == [(10, 30), (20, 30), (30, 20), (40, 10)]
    assert backend.completed == {1: Result()}


def test_a_function_that_takes_too_long_is_cancelled_and_has_failed() -> None:
    ended_s = []

    async def function(task: Task) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended_s.append(now_s())

    backend = FakeBackend()
    attempted(function, a_task(timeout_s=50), backend)
    assert ended_s == [50]
    assert backend.failed == {1: ("it had not ended after 50 s", False)}


def test_a_function_whose_task_is_lost_is_cancelled_and_nothing_is_reported() -> None:
    ended_s = []

    async def function(task: Task) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended_s.append(now_s())

    backend = FakeBackend()
    backend.lost_after_s = 15
    attempted(function, a_task(timeout_s=500), backend)
    assert ended_s == [20]
    assert not backend.failed
    assert not backend.completed


def test_a_report_that_comes_too_late_is_no_error() -> None:
    backend = FakeBackend()
    backend.lost_after_s = 0
    attempted(lambda task: b"x", a_task(), backend)
    assert not backend.completed


def test_an_async_function_that_does_not_let_itself_be_cancelled_makes_the_worker_end() -> None:
    async def function(task: Task) -> None:
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                if now_s() >= 55:
                    raise

    backend = FakeBackend()
    with pytest.raises(WorkerStuck, match="goes on"):
        attempted(function, a_task(timeout_s=50), backend)
    assert backend.failed == {1: ("it had not ended after 50 s", False)}


def test_a_thread_that_does_not_end_makes_the_worker_end() -> None:
    may_end = threading.Event()
    backend = FakeBackend()
    with pytest.raises(WorkerStuck, match="another can take its place"):
        attempted(lambda task: may_end.wait(), a_task(timeout_s=50), backend)
    may_end.set()
    assert backend.failed == {1: ("it had not ended after 50 s", False)}
    assert backend.extended[-1] == (40, 10)


def test_a_thread_that_does_not_end_makes_the_worker_end_also_if_the_server_was_quicker() -> None:
    may_end = threading.Event()
    backend = FakeBackend()
    backend.lost_after_s = 50
    with pytest.raises(WorkerStuck):
        attempted(lambda task: may_end.wait(), a_task(timeout_s=50), backend)
    may_end.set()


def test_functions_of_the_ordinary_kind_run_side_by_side_in_threads() -> None:
    """Two that wait for each other."""
    both = threading.Barrier(2)

    def function(task: Task) -> str:
        both.wait(timeout=60)
        return threading.current_thread().name

    async def two() -> None:
        await asyncio.gather(*(attempt(a_task(job), Handler("A", function), backend, lease_s=30) for job in (1, 2)))

    backend = FakeBackend()
    asyncio.run(two())
    assert {result.body for result in backend.completed.values()} == {b"task 1/load", b"task 2/load"}


def test_a_result_for_which_the_server_has_no_room_is_reported_again_until_it_has() -> None:
    class FullBackend(FakeBackend):
        refusals = 0

        async def complete(self, task: Task, result: Result) -> None:
            if now_s() < 70:
                self.refusals += 1
                raise StorageFull("no room")
            await super().complete(task, result)

    backend = FullBackend()
    attempted(lambda task: b"x", a_task(timeout_s=100.0), backend, lease_s=30.0)
    assert backend.completed == {1: Result(b"x")}
    assert not backend.failed
    assert backend.refusals > 10
    assert backend.extended, "the lease is kept meanwhile"
