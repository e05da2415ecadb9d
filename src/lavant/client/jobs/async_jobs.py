"""Jobs, for tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol, TypeVar

from lavant.broker.protocol.jobs import JobSummary, JobView
from lavant.broker.workflows.job import RUNNING
from lavant.client.connection.calls import Call
from lavant.client.jobs import calls
from lavant.client.jobs.calls import Input

T = TypeVar("T")
LISTED_AT_ONCE = 1000


class _Running(Protocol):
    async def run(self, call: Call[T]) -> T: ...


class AsyncJobRequests:
    """A part of a client: what is about jobs."""

    async def define_jobs(self: _Running, source: Path | str) -> None:
        """Define job types and their topics, from a TOML file or its text. Jobs under way keep the old definition."""
        await self.run(calls.define(source))

    async def submit(self: _Running, job_type: str, input: Input = b"", *, name: str = "") -> int:
        """Submit a job, and return its number; it is on the server's disk then, and will end.

        A second submission under the same name is the same job, as long as that is remembered.
        """
        return await self.run(calls.submit(job_type, input, name))

    async def job(self: _Running, number: int) -> JobView:
        """A job's state, timeline and results."""
        return await self.run(calls.describe(number))

    async def wait(self: _Running, number: int, *, timeout_s: float | None = None) -> JobView:
        """A job when it has ended, or as it is after `timeout_s`; its `state` tells."""
        loop = asyncio.get_running_loop()
        end_s = None if timeout_s is None else loop.time() + timeout_s
        looks_s = calls.looks_s()
        while True:
            view = await self.run(calls.describe(number))
            pause_s = next(looks_s)
            left_s = pause_s if end_s is None else min(pause_s, end_s - loop.time())
            if view.state != RUNNING or left_s <= 0:
                return view
            await asyncio.sleep(left_s)

    async def cancel(self: _Running, number: int) -> bool:
        """End a job; False if it had ended already. Its tasks are not leased any more, reports of them are refused."""
        return await self.run(calls.cancel(number))

    async def jobs(self: _Running, *, state: str = "") -> AsyncIterator[JobSummary]:
        """All jobs that are known, or those in a state, the oldest first."""
        after: int | None = 0
        while after is not None:
            page = await self.run(calls.listed(after, LISTED_AT_ONCE, state))
            for each in page.jobs:
                yield each
            after = page.after
