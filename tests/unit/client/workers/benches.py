"""A backend that is a list of tasks, and an event loop whose time passes at once."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from lavant.broker.protocol.jobs import Result
from lavant.client.workers.backend import POLL_S
from lavant.client.workers.task import Task
from lavant.core.errors import AttemptOver, LavantError

T = TypeVar("T")
THREAD_S = 0.05


class _Selector(selectors.DefaultSelector):
    """When nothing is ready, the time until the next timer has passed; threads get a moment before."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        works = any(thread.name.startswith("task ") for thread in threading.enumerate())
        ready = super().select(timeout if not timeout else THREAD_S if works else 0)
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _Selector()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now_s


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def a_task(job: int = 1, *, topic: str = "A", timeout_s: float = 60.0, attempt: int = 1) -> Task:
    return Task(
        job=job,
        job_type="simple",
        name="load",
        topic=topic,
        attempt=attempt,
        input=b"input",
        results={},
        timeout_s=timeout_s,
    )


class FakeBackend:
    """Hands out its tasks one after the other; keeps what is reported, with its time."""

    def __init__(self, *tasks: Task, failure: LavantError | None = None) -> None:
        self.tasks = deque(tasks)
        self.completed: dict[int, Result] = {}
        self.failed: dict[int, tuple[str, bool]] = {}
        self.extended: list[tuple[float, float]] = []
        self.leases = 0
        self.lost_after_s: float | None = None
        """From then on all attempts are over."""
        self.refuses: LavantError | None = None
        """What completions are refused with."""
        self._failure = failure
        self.is_closed = False

    async def lease(self, topic: str) -> Task | None:
        self.leases += 1
        if self._failure is not None:
            raise self._failure
        for task in self.tasks:
            if task.topic == topic:
                self.tasks.remove(task)
                return task
        await asyncio.sleep(POLL_S)
        return None

    async def complete(self, task: Task, result: Result) -> None:
        self._check()
        if self.refuses is not None:
            raise self.refuses
        self.completed[task.job] = result

    async def fail(self, task: Task, reason: str, *, is_final: bool = False) -> None:
        self._check()
        self.failed[task.job] = reason, is_final

    async def extend(self, task: Task, seconds: float) -> None:
        self._check()
        self.extended.append((round(now_s(), 6), round(seconds, 6)))

    async def close(self) -> None:
        self.is_closed = True

    def _check(self) -> None:
        if self.lost_after_s is not None and now_s() >= self.lost_after_s:
            raise AttemptOver("somebody else has it")
