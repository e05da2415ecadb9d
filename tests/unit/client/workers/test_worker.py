"""A worker's slots, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.client.workers.benches import FakeBackend, a_task, in_virtual_time, now_s

from lavant import Task, Worker
from lavant.client.workers.functions import Handler
from lavant.client.workers.worker import WorkerCounts
from lavant.core.errors import InvalidValue, LimitExceeded, UnknownTopic, WorkerStuck

Function = Callable[[Task], Awaitable[None]]


def lasting(seconds: float) -> Function:
    async def function(task: Task) -> None:
        await asyncio.sleep(seconds)

    return function


def worked(
    backend: FakeBackend, function: Function, *, drain_after_s: float, drain_s: float = 100, concurrency: int = 1
) -> float:
    """When the worker ended."""

    async def run() -> float:
        worker = Worker(backend, [Handler("A", function)], concurrency=concurrency)
        asyncio.get_running_loop().call_later(drain_after_s, worker.drain)
        await worker.run(drain_s=drain_s)
        return now_s()

    return in_virtual_time(run())


@pytest.mark.parametrize(("concurrency", "seconds"), [(1, 40), (2, 20), (4, 10)])
def test_each_slot_has_one_task_at_a_time(concurrency: int, seconds: float) -> None:
    most = running = 0
    ends_s: list[float] = []

    async def function(task: Task) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(10)
        running -= 1
        ends_s.append(now_s())

    backend = FakeBackend(*map(a_task, range(1, 5)))
    worked(backend, function, drain_after_s=100, concurrency=concurrency)
    assert (most, ends_s[-1], sorted(backend.completed)) == (concurrency, seconds, [1, 2, 3, 4])


def test_a_worker_that_drains_finishes_what_it_has_and_leases_no_more() -> None:
    backend = FakeBackend(a_task(1), a_task(2))
    assert worked(backend, lasting(10), drain_after_s=3) == 10
    assert list(backend.completed) == [1]
    assert [task.job for task in backend.tasks] == [2]


def test_a_task_that_comes_while_an_idle_worker_is_told_to_drain_is_done() -> None:
    backend = FakeBackend()

    async def lease(topic: str) -> Task:
        await asyncio.sleep(1)
        return a_task(9)

    backend.lease = lease  # type: ignore[method-assign]
    worked(backend, lasting(1), drain_after_s=0.5)
    assert list(backend.completed) == [9]


def test_what_is_not_finished_in_time_is_given_back() -> None:
    backend = FakeBackend(a_task(1), a_task(2))
    assert worked(backend, lasting(50), drain_after_s=3, drain_s=20, concurrency=2) == 23
    assert backend.failed == dict.fromkeys((1, 2), ("the worker was stopped", False))
    assert not backend.completed


def test_an_error_that_makes_it_impossible_to_go_on_is_raised() -> None:
    with pytest.raises(UnknownTopic, match="no topic"):
        worked(FakeBackend(failure=UnknownTopic("there is no topic 'A'")), lasting(1), drain_after_s=9)


def test_a_worker_that_fails_finishes_the_tasks_of_its_other_topics() -> None:
    backend = FakeBackend(a_task(1))

    async def lease(topic: str) -> Task | None:
        if topic == "B":
            await asyncio.sleep(2)
            raise UnknownTopic("there is no topic 'B'")
        return await FakeBackend.lease(backend, topic)

    async def run() -> None:
        backend.lease = lease  # type: ignore[method-assign]
        await Worker(backend, [Handler("A", lasting(5)), Handler("B", lasting(5))]).run()

    with pytest.raises(UnknownTopic):
        in_virtual_time(run())
    assert list(backend.completed) == [1]


def test_settings_that_cannot_be_are_refused() -> None:
    handler = Handler("A", lasting(1))
    for settings in ({"concurrency": 0}, {"concurrency": 1001}, {"lease_s": 0.4}, {"lease_s": 3601}):
        with pytest.raises(InvalidValue):
            Worker(FakeBackend(), [handler], **settings)
    with pytest.raises(InvalidValue, match="at least one function"):
        Worker(FakeBackend(), [])


# ── counts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def counted(
    backend: FakeBackend, function: Callable[[Task], object], *, drain_after_s: float = 3.0, drain_s: float = 5.0
) -> WorkerCounts:
    """What a worker counts that was drained after some seconds."""

    async def run() -> WorkerCounts:
        worker = Worker(backend, [Handler("A", function)])
        asyncio.get_running_loop().call_later(drain_after_s, worker.drain)
        with contextlib.suppress(WorkerStuck):
            await worker.run(drain_s=drain_s)
        return worker.counts

    return in_virtual_time(run())


def as_tuple(counts: WorkerCounts) -> tuple[int, int, int, int]:
    return counts.completed, counts.failed, counts.overtaken, counts.given_back


def test_tasks_completed_and_attempts_that_failed_are_counted_apart() -> None:
    """Three attempts at two tasks are not three tasks done."""

    async def function(task: Task) -> None:
        if task.attempt == 1 and task.job == 1:
            raise ValueError("not yet")

    backend = FakeBackend(a_task(1), a_task(1, attempt=2), a_task(2))
    counts = counted(backend, function)
    assert as_tuple(counts) == (2, 1, 0, 0)
    assert str(counts) == "2 tasks completed, 1 attempt failed, 0 given back"


def test_what_took_too_long_or_was_refused_has_failed() -> None:
    assert as_tuple(counted(FakeBackend(a_task(timeout_s=1)), lasting(50))) == (0, 1, 0, 0)
    backend = FakeBackend(a_task())
    backend.refuses = LimitExceeded("too large")
    assert as_tuple(counted(backend, lasting(0))) == (0, 1, 0, 0)


def test_what_was_stopped_is_given_back_and_neither_completed_nor_failed() -> None:
    backend = FakeBackend(a_task(1), a_task(2))
    assert as_tuple(counted(backend, lasting(50))) == (0, 0, 0, 1)


@pytest.mark.parametrize("seconds", [1.5, 15])
def test_what_somebody_else_had_by_then_counts_for_nothing(seconds: float) -> None:
    backend = FakeBackend(a_task())
    backend.lost_after_s = 1
    counts = counted(backend, lasting(seconds), drain_after_s=16)
    assert as_tuple(counts) == (0, 0, 1, 0)
    assert str(counts).endswith(", 1 too late")


def test_what_cannot_be_given_back_is_not_counted_as_given_back() -> None:
    backend = FakeBackend(a_task())
    backend.lost_after_s = 4
    assert as_tuple(counted(backend, lasting(50))) == (0, 0, 0, 0)


def test_a_function_that_does_not_end_is_one_failed_attempt() -> None:
    """Reported once, and not given back beside."""
    over = threading.Event()
    backend = FakeBackend(a_task(timeout_s=1))
    try:
        assert as_tuple(counted(backend, lambda task: over.wait(20))) == (0, 1, 0, 0)
    finally:
        over.set()
    assert backend.failed == {1: ("it had not ended after 1 s", False)}
