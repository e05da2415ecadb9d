"""Operations on jobs: define, submit, describe, wait for, cancel and list them.

All may be repeated: a submission has a name, so a repetition returns the same job.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from lavant import tracing
from lavant.broker.protocol.jobs import (
    AddSchedule,
    CancelJob,
    DefineJobs,
    DescribeJob,
    ListJobs,
    ListSchedules,
    RemoveSchedule,
    SubmitJob,
)
from lavant.broker.workflows.definitions.definition import Workflows
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.job import RUNNING
from lavant.broker.workflows.limits import INTERVAL_MS_MAX, INTERVAL_MS_MIN
from lavant.client.arguments import milliseconds
from lavant.client.bodies import Body, body_bytes
from lavant.client.connection.calls import Call, done
from lavant.client.operations import Caller, listing, operation
from lavant.client.values.jobs import JobSummary, JobView, ScheduleState
from lavant.client.values.mirror import from_protocol
from lavant.client.workflows import Workflow, workflows_of
from lavant.core.errors import InvalidValue
from lavant.core.seconds import check_seconds

PAGE_SIZE = 1000
POLL_S, POLL_S_MAX = 0.02, 1.0
"""The first and the longest pause between two polls of a job: short jobs are noticed soon, long ones cost little."""


class JobOperations(Caller):
    """The part of a client that is about jobs."""

    @operation
    async def define_jobs(self, source: Path | str | Workflow | Sequence[Workflow]) -> None:
        """Defines job types and their topics: from a TOML file or its text, or from a `Workflow` or several. Running
        jobs keep the old definition."""
        await self._answer(Call(DefineJobs(_workflows(source)), done))

    @operation
    async def submit(self, job_type: str, input: Body = b"", *, name: str = "") -> int:
        """Submits a job and returns its number; the job is on the server's disk then, and will end.

        A second submission under the same name returns the same job, as long as the server remembers it.
        """
        unique = name if name else f"~{secrets.token_hex(8)}"  # so that a retry does not submit it twice
        with tracing.producing("submit", job_type):
            request = SubmitJob(job_type, body_bytes(input, "a job's input"), unique, tracing.current())
            return await self._answer(Call(request, lambda answer: answer.job))

    @operation
    async def job(self, number: int) -> JobView:
        """Returns a job's state, timeline and results."""
        return await self._answer(_describe(number))

    @operation
    async def wait(self, number: int, *, timeout_s: float | None = None) -> JobView:
        """Waits until a job has ended, or for `timeout_s`, and returns it; `state` tells which."""
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = POLL_S
        while True:
            view = await self._answer(_describe(number))
            left_s = pause_s if end_s is None else min(pause_s, end_s - time.monotonic())
            if view.state != RUNNING or left_s <= 0:
                return view
            await self._sleep(left_s)
            pause_s = min(1.5 * pause_s, POLL_S_MAX)

    @operation
    async def cancel(self, number: int) -> bool:
        """Ends a job; False if it had ended already. Its tasks are no longer leased, and their results are refused."""
        return await self._answer(Call(CancelJob(number), lambda answer: answer.is_new))

    @listing
    async def jobs(self, *, state: str = "") -> AsyncIterator[JobSummary]:
        """All jobs the server knows, or those in `state`, the oldest first."""
        after: int | None = 0
        while after is not None:
            page = await self._answer(Call(ListJobs(after, PAGE_SIZE, state), lambda answer: answer))
            for each in page.jobs:
                yield from_protocol(JobSummary, each)
            after = page.after

    # ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @operation
    async def schedule(
        self,
        name: str,
        *,
        cron: str = "",
        every_s: float | None = None,
        job: str = "",
        queue: str = "",
        body: Body = b"",
    ) -> ScheduleState:
        """Submits a `job` of this type, or sends a message to a `queue`, again and again: at the times of a `cron`
        expression, in UTC, or `every_s` seconds. A schedule of the same name is replaced. It is durable, and fires once
        each time, also if the server is restarted; times that pass while the server is down count as one."""
        if every_s is not None:
            check_seconds("every_s", every_s, INTERVAL_MS_MIN / 1000, INTERVAL_MS_MAX / 1000)
        interval_ms = milliseconds("every_s", every_s)
        request = AddSchedule(
            name, cron, 0 if interval_ms is None else interval_ms, job, queue, body_bytes(body, "a schedule's body")
        )
        return await self._answer(Call(request, lambda answer: from_protocol(ScheduleState, answer.schedule)))

    @operation
    async def unschedule(self, name: str) -> None:
        """Removes a schedule; what it has made stays."""
        await self._answer(Call(RemoveSchedule(name), done, is_repeatable=False))

    @listing
    async def schedules(self) -> AsyncIterator[ScheduleState]:
        """All schedules, sorted by name."""
        after = ""
        while found := (await self._answer(Call(ListSchedules(after, PAGE_SIZE), lambda answer: answer))).schedules:
            for each in found:
                yield from_protocol(ScheduleState, each)
            after = found[-1].name


def _describe(job: int) -> Call[JobView]:
    return Call(DescribeJob(job), partial(from_protocol, JobView))


def _workflows(source: Path | str | Workflow | Sequence[Workflow]) -> Workflows:
    if isinstance(source, str | Path):
        return read_workflows(_text(source))
    written = [source] if isinstance(source, Workflow) else source
    if not isinstance(written, Sequence) or not all(isinstance(each, Workflow) for each in written):
        raise InvalidValue(f"define_jobs takes a TOML file, its text, a Workflow or a list of them, got {source!r:.60}")
    return workflows_of(written)


def _text(source: Path | str) -> str:
    """The text of a TOML file. A string of more than one line is the text itself."""
    if isinstance(source, str) and "\n" in source:
        return source
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidValue(f"cannot read the definitions of jobs in {str(source)!r:.80}: {why}") from None
