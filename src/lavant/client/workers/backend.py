"""The interface between a worker and the source of its tasks: a Lavant server, or RabbitMQ."""

from __future__ import annotations

from typing import Protocol

from lavant.broker.protocol.jobs import Result
from lavant.client.workers.task import Task

LEASE_S = 30.0
"""The lease of a task. If a worker is silent for so long, its tasks go to others."""
POLL_S = 1.0
"""The long poll for a task. A stopping worker waits for its end, so that no task is leased in vain."""


class Backend(Protocol):
    """Belongs to the event loop of its worker. Requests retry short failures, and raise a `LavantError` for
    lasting ones: an unknown topic, a refused API key."""

    async def lease(self, topic: str) -> Task | None:
        """Leases the next task of a topic; None if none came within about `POLL_S`."""
        ...

    async def complete(self, task: Task, result: Result) -> None:
        """Reports a result. Raises `AttemptOver` if another worker has the task, or its job has ended."""
        ...

    async def fail(self, task: Task, reason: str, *, is_final: bool = False) -> None:
        """Reports a failure. The workflow decides about a retry, unless the failure is final."""
        ...

    async def extend(self, task: Task, seconds: float) -> None:
        """Extends the lease. Raises `AttemptOver` like `complete`."""
        ...

    async def close(self) -> None:
        """Closes the backend for good."""
        ...
