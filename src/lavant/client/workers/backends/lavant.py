"""Tasks from a Lavant server, over the native protocol."""

from __future__ import annotations

import math

from lavant.broker.protocol.jobs import CompleteTask, ExtendTask, FailTask, LeaseTasks, Result
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.client.connection.retries import Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.workers.backend import LEASE_S, POLL_S
from lavant.client.workers.task import Task, task_of

PATIENCE = Retries(within_s=math.inf)
"""A worker waits for its server, however long that takes."""


class LavantBackend:
    """`worker` is the name in the timelines of jobs."""

    def __init__(self, settings: ConnectionSettings, worker: str, *, lease_s: float = LEASE_S) -> None:
        self._first = AsyncConnection(settings)
        self._connection = AsyncConnection(settings._replace(retries=PATIENCE))
        self._worker = worker
        self._lease_ms = round(lease_s * SECOND_MS)

    async def open(self) -> None:
        """Raises if the server does not answer or denies access; later failures are retried."""
        async with self._first as connection:
            await connection.open()

    async def lease(self, topic: str) -> Task | None:
        request = LeaseTasks(topic, self._worker, 1, round(POLL_S * SECOND_MS), self._lease_ms)
        leased = await self._connection.run(Call(request, lambda answer: answer))
        if not leased.tasks:
            return None
        [given] = leased.tasks
        return task_of(given, topic)

    async def complete(self, task: Task, result: Result) -> None:
        await self._report(CompleteTask(task.job, task.name, task.attempt, result))

    async def fail(self, task: Task, reason: str, *, is_final: bool = False) -> None:
        await self._report(FailTask(task.job, task.name, task.attempt, reason, is_final))

    async def extend(self, task: Task, seconds: float) -> None:
        await self._report(ExtendTask(task.job, task.name, task.attempt, max(1, round(seconds * SECOND_MS))))

    async def close(self) -> None:
        await self._connection.close()

    async def _report(self, report: CompleteTask | FailTask | ExtendTask) -> None:
        await self._connection.run(Call(report, lambda answer: answer))
