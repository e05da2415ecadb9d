"""A worker's slots, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.client.workers.benches import FakeBackend, a_task, in_virtual_time, now_s

from lavant import Task, Worker
from lavant.client.workers.functions import Handler
from lavant.core.errors import InvalidValue, UnknownTopic

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
