"""Jobs, for callers that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
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
    def run(self, call: Call[T]) -> T: ...


class JobRequests:
    """A part of a client: what is about jobs."""

    def define_jobs(self: _Running, source: Path | str) -> None:
        """Define job types and their topics, from a TOML file or its text. Jobs under way keep the old definition."""
        self.run(calls.define(source))

    def submit(self: _Running, job_type: str, input: Input = b"", *, name: str = "") -> int:
        """Submit a job, and return its number; it is on the server's disk then, and will end.

        A second submission under the same name is the same job, as long as that is remembered.
        """
        return self.run(calls.submit(job_type, input, name))

    def job(self: _Running, number: int) -> JobView:
        """A job's state, timeline and results."""
        return self.run(calls.describe(number))

    def wait(self: _Running, number: int, *, timeout_s: float | None = None) -> JobView:
        """A job when it has ended, or as it is after `timeout_s`; its `state` tells."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        looks_s = calls.looks_s()
        while True:
            view = self.run(calls.describe(number))
            pause_s = next(looks_s)
            left_s = pause_s if end_s is None else min(pause_s, end_s - time.monotonic())
            if view.state != RUNNING or left_s <= 0:
                return view
            time.sleep(left_s)

    def cancel(self: _Running, number: int) -> bool:
        """End a job; False if it had ended already. Its tasks are not leased any more, reports of them are refused."""
        return self.run(calls.cancel(number))

    def jobs(self: _Running, *, state: str = "") -> Iterator[JobSummary]:
        """All jobs that are known, or those in a state, the oldest first."""
        after: int | None = 0
        while after is not None:
            page = self.run(calls.listed(after, LISTED_AT_ONCE, state))
            yield from page.jobs
            after = page.after
