"""One attempt at a task, from the call of its function to the report; extends the lease and enforces the time limit.

    function ──returns──────────────────► complete
        │ ├───raises────────────────────► fail; final if the error says so
        │ ├───takes too long────────────► fail; it is cancelled, or the worker is stuck with it
        │ └───lease lost to another─────► cancelled, nothing is reported

A synchronous function runs in a thread of its own, so that it blocks neither the heartbeat of leases nor other tasks. A
thread cannot be stopped from outside: one that exceeds its time limit makes the worker end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable
from enum import Enum, auto
from typing import Any

from lavant import tracing
from lavant.broker.workflows.limits import REASON_CHARACTERS_MAX
from lavant.client.workers.backend import Backend
from lavant.client.workers.functions import Handler
from lavant.client.workers.task import Made, Task, result_of
from lavant.core.errors import AttemptOver, InvalidValue, LavantError, PermanentFailure, StorageFull, WorkerStuck

CANCEL_S_MAX = 5.0
"""How long a cancelled function may take to end."""
FULL_S = 1.0
"""The pause between retries of a report while the server has no room for the result."""

_logger = logging.getLogger(__name__)


class AttemptOutcome(Enum):
    """The outcome of an attempt, as it was reported."""

    COMPLETED = auto()
    FAILED = auto()
    OVERTAKEN = auto()
    """The attempt does not count: another worker has the task, or its job has ended."""


async def attempt(task: Task, handler: Handler, backend: Backend, *, lease_s: float) -> AttemptOutcome:
    """Runs the function and reports the outcome.

    Raises `WorkerStuck` if the function does not end and cannot be stopped, after it has reported the failure.
    """
    running = asyncio.ensure_future(_started(task, handler))
    keeping = asyncio.create_task(_keep(task, backend, lease_s))
    try:
        await _until_over(task, running, keeping, is_stoppable=handler.is_async)
        if running.done():
            return await _report(task, running, backend)
        return await _give_up(task, running, backend, is_lost=keeping.done(), is_stoppable=handler.is_async)
    except AttemptOver as over:  # the result does not count: another worker has the task, or the job has ended
        _logger.warning("%s", over)
        return AttemptOutcome.OVERTAKEN
    except BaseException:
        running.cancel()
        raise
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def _until_over(
    task: Task, running: asyncio.Future[Made], keeping: asyncio.Task[None], *, is_stoppable: bool
) -> None:
    """Waits until the function has ended, its time is up, or the lease is lost. Threads are awaited."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + task.timeout_s
    both: list[asyncio.Future[Any]] = [running, keeping]
    await asyncio.wait(both, timeout=task.timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if keeping.done() and not is_stoppable:
        await asyncio.wait([running], timeout=max(0.0, end_s - loop.time()))


async def _keep(task: Task, backend: Backend, lease_s: float) -> None:
    """Extends the lease three times within its length, but not beyond the time limit of the task.

    Returns when the lease is lost.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + task.timeout_s
    while True:
        await asyncio.sleep(lease_s / 3)
        try:
            await backend.extend(task, min(lease_s, end_s - loop.time()))
        except LavantError as error:
            _logger.warning("%s", error)
            return


async def _give_up(
    task: Task, running: asyncio.Future[Made], backend: Backend, *, is_lost: bool, is_stoppable: bool
) -> AttemptOutcome:
    if is_stoppable:
        running.cancel()
        await asyncio.wait([running], timeout=CANCEL_S_MAX)
    reason = f"it had not ended after {task.timeout_s:g} s"
    if not is_lost:
        with contextlib.suppress(AttemptOver):  # the server has noticed it already
            await backend.fail(task, reason)
    if not running.done():
        raise WorkerStuck(f"{task}: {reason}, and goes on; this worker ends, so that another can take its place")
    return AttemptOutcome.OVERTAKEN if is_lost else AttemptOutcome.FAILED


async def _report(task: Task, running: asyncio.Future[Made], backend: Backend) -> AttemptOutcome:
    try:
        result = result_of(running.result())
    except Exception as error:
        _logger.warning("%s failed", task, exc_info=error)
        await backend.fail(task, _reason(error), is_final=isinstance(error, PermanentFailure))
        return AttemptOutcome.FAILED
    while True:
        try:
            await backend.complete(task, result)
        except StorageFull as full:  # the lease is extended meanwhile, up to the time limit
            _logger.warning("%s cannot be reported yet: %s", task, full)
            await asyncio.sleep(FULL_S)
        except InvalidValue as error:  # too large, for example: a retry would not help
            await backend.fail(task, _reason(error), is_final=True)
            return AttemptOutcome.FAILED
        else:
            return AttemptOutcome.COMPLETED


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]


def _started(task: Task, handler: Handler) -> Awaitable[Made]:
    return _traced(task, handler) if handler.is_async else _in_thread(task, handler)


async def _traced(task: Task, handler: Handler) -> Made:
    with tracing.processing(task.topic, task.trace):
        made: Made = await handler.function(task)
    return made


def _in_thread(task: Task, handler: Handler) -> asyncio.Future[Made]:
    """Not in a pool: at exit, a pool waits for functions that never end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Made] = loop.create_future()

    def work() -> None:
        try:
            with tracing.processing(task.topic, task.trace):
                made, error = handler.function(task), None
        except (Exception, SystemExit) as raised:
            made, error = None, raised
        with contextlib.suppress(RuntimeError):  # the worker ended without it
            loop.call_soon_threadsafe(settle, made, error)

    def settle(made: Made, error: Exception | SystemExit | None) -> None:
        if future.done():  # the worker is about to end
            return
        if error is None:
            future.set_result(made)
        elif isinstance(error, StopIteration | SystemExit):  # in an event loop, these have another meaning
            future.set_exception(RuntimeError(_reason(error)))
        else:
            future.set_exception(error)

    threading.Thread(target=work, name=f"task {task.key}", daemon=True).start()
    return future
