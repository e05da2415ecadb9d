"""A worker: each slot of a topic leases a task, runs it, reports the outcome, and leases the next.

    running ──drain()──► draining: no new leases, running tasks finish ──► run() returns
                            └──after drain_s──► the rest is released, as failed attempts

A slot is a consumer of the models: it has one task at a time and no prefetch, since a task that waits in a busy worker
could run in an idle one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from lavant.client.workers.attempt import AttemptOutcome, attempt
from lavant.client.workers.backend import LEASE_S, Backend
from lavant.client.workers.functions import Handler
from lavant.client.workers.task import Task
from lavant.core.errors import AttemptOver, InvalidValue, LavantError, WorkerStuck

CONCURRENCY_MAX = 1000
DRAIN_S = 25.0
"""Shorter than the 30 s after which Kubernetes kills a container."""
DRAIN_S_MAX = 24 * 3600.0
LEASE_S_MIN, LEASE_S_MAX = 0.5, 3600.0
GIVE_BACK_S_MAX = 3.0

_logger = logging.getLogger(__name__)


class WorkerCounts:
    """The outcomes of a worker's attempts. Each is counted once."""

    def __init__(self) -> None:
        self.completed = 0
        """Tasks whose results the server has."""
        self.failed = 0
        """Attempts that raised, took too long, or whose result was refused."""
        self.overtaken = 0
        """Attempts that do not count: another worker had the task, or its job had ended."""
        self.given_back = 0
        """Attempts that had not ended when the worker did."""

    def add(self, outcome: AttemptOutcome) -> None:
        match outcome:
            case AttemptOutcome.COMPLETED:
                self.completed += 1
            case AttemptOutcome.FAILED:
                self.failed += 1
            case AttemptOutcome.OVERTAKEN:
                self.overtaken += 1

    def __str__(self) -> str:
        """
        >>> counts = WorkerCounts()
        >>> counts.add(AttemptOutcome.COMPLETED)
        >>> str(counts)
        '1 task completed, 0 attempts failed, 0 given back'
        """
        tasks = "1 task" if self.completed == 1 else f"{self.completed} tasks"
        attempts = "1 attempt" if self.failed == 1 else f"{self.failed} attempts"
        late = f", {self.overtaken} too late" if self.overtaken else ""
        return f"{tasks} completed, {attempts} failed, {self.given_back} given back{late}"


class Worker:
    """Runs the tasks of its handlers' topics, up to `concurrency` at a time for each."""

    def __init__(
        self, backend: Backend, handlers: Sequence[Handler], *, concurrency: int = 1, lease_s: float = LEASE_S
    ) -> None:
        if not handlers:
            raise InvalidValue("a worker needs at least one function for a topic")
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise InvalidValue(f"concurrency must be between 1 and {CONCURRENCY_MAX}, got {concurrency}")
        if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
            raise InvalidValue(f"lease_s must be between {LEASE_S_MIN:g} and {LEASE_S_MAX:g}, got {lease_s:g}")
        self._backend = backend
        self._handlers = handlers
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._draining = asyncio.Event()
        self._under_way: dict[tuple[int, str, int], Task] = {}
        self.counts = WorkerCounts()

    def drain(self) -> None:
        """Leases nothing more; `run` returns when running tasks have ended. Call it in the worker's event loop."""
        self._draining.set()

    async def run(self, *, drain_s: float = DRAIN_S) -> None:
        """Works until `drain` is called. Tasks that have not ended `drain_s` later are released.

        Raises the error that makes it impossible to go on.
        """
        if not 0 <= drain_s <= DRAIN_S_MAX:
            raise InvalidValue(f"drain_s must be between 0 and {DRAIN_S_MAX:g}, got {drain_s:g}")
        slots = [
            asyncio.create_task(self._slot(handler), name=f"slot {number} of topic {handler.topic}")
            for handler in self._handlers
            for number in range(self._concurrency)
        ]
        alarm = asyncio.create_task(self._alarm(drain_s))
        try:
            await self._until_ended(slots, alarm)
        finally:
            for each in (*slots, alarm):
                each.cancel()
            await asyncio.wait([*slots, alarm])
            await self._give_back()

    async def _until_ended(self, slots: list[asyncio.Task[None]], alarm: asyncio.Task[None]) -> None:
        """Runs all slots. After an error in one, the others finish their tasks; then it is raised."""
        open_, failed = set(slots), None
        while open_:
            done, _ = await asyncio.wait([*open_, alarm], return_when=asyncio.FIRST_COMPLETED)
            for slot in done & open_:
                failed = slot.exception() if failed is None else failed
            if failed is not None:
                self.drain()
            if alarm in done:
                break
            open_ -= done
        if failed is not None:
            raise failed

    async def _slot(self, handler: Handler) -> None:
        while not self._draining.is_set():
            task = await self._backend.lease(handler.topic)
            if task is None:
                continue
            name = (task.job, task.name, task.attempt)
            self._under_way[name] = task
            try:
                outcome = await attempt(task, handler, self._backend, lease_s=self._lease_s)
            except WorkerStuck:  # it is reported as failed and needs no release
                self.counts.failed += 1
                del self._under_way[name]
                raise
            del self._under_way[name]
            self.counts.add(outcome)

    async def _alarm(self, drain_s: float) -> None:
        """Returns when `drain_s` has passed since `drain`."""
        await self._draining.wait()
        await asyncio.sleep(drain_s)

    async def _give_back(self) -> None:
        """Releases tasks, so that other workers need not wait for the leases to expire."""
        try:
            async with asyncio.timeout(GIVE_BACK_S_MAX):
                for task in self._under_way.values():
                    with contextlib.suppress(AttemptOver):
                        await self._backend.fail(task, "the worker was stopped")
                        self.counts.given_back += 1
        except (LavantError, TimeoutError) as error:
            _logger.warning("not all tasks were released; the others come again when their leases expire: %s", error)
