"""What a worker needs of whatever hands out tasks: five requests. Lavant's own server is one, RabbitMQ another."""

from __future__ import annotations

from typing import Protocol

from lavant.broker.protocol.jobs import Result
from lavant.client.workers.task import Task

LEASE_S = 30.0
"""A worker that is not heard of for so long is taken for dead, and its tasks go to others."""
POLL_S = 1.0
"""How long a lease waits for a task. A worker that stops waits for it too, so that no task comes to nobody."""


class Backend(Protocol):
    """Belongs to the event loop of its worker. Requests go on through short failures of whatever is behind it, and
    raise a `LavantError` when that is of no use: an unknown topic, a key that is not accepted."""

    async def lease(self, topic: str) -> Task | None:
        """The next task of a topic, for this worker alone; None if none came within `POLL_S` or so."""
        ...

    async def complete(self, task: Task, result: Result) -> None:
        """It is done. Raises `AttemptOver` if it had been given to somebody else since, or its job has ended."""
        ...

    async def fail(self, task: Task, reason: str, *, is_final: bool = False) -> None:
        """It was tried in vain; the workflow says whether it is tried again, unless it is final."""
        ...

    async def extend(self, task: Task, seconds: float) -> None:
        """It is being worked at: keep it for so long from now on. Raises `AttemptOver` like `complete`."""
        ...

    async def close(self) -> None:
        """For good."""
        ...
