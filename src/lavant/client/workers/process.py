"""A worker process: signals, heartbeats, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping

from lavant import tracing
from lavant.broker.workflows.limits import WORKER_CHARACTERS_MAX
from lavant.client.workers.backend import Backend
from lavant.client.workers.worker import DRAIN_S, Worker
from lavant.core.worker_pool import HEARTBEAT, HEARTBEAT_S, HEARTBEAT_VARIABLE


async def beat(environment: Mapping[str, str], on_orphaned: Callable[[], None]) -> None:
    """Sends heartbeats until it is cancelled; none without a supervisor (started by hand, or in a container)."""
    number = environment.get(HEARTBEAT_VARIABLE, "")
    if not number.isdecimal():
        return
    pipe = int(number)
    os.set_blocking(pipe, False)
    while True:
        try:
            with contextlib.suppress(BlockingIOError):  # the pipe is full: the supervisor has heartbeats to read
                os.write(pipe, HEARTBEAT)
        except OSError:
            on_orphaned()
            return
        await asyncio.sleep(HEARTBEAT_S)


def default_name() -> str:
    """The name of this worker in timelines of jobs."""
    return f"{socket.gethostname()}-{os.getpid()}"[-WORKER_CHARACTERS_MAX:]


async def work(
    open_backend: Callable[[], Awaitable[Backend]],
    make: Callable[[Backend], Worker],
    *,
    drain_s: float = DRAIN_S,
    on_started: Callable[[], None] = lambda: None,
) -> Worker:
    """Works until SIGTERM or SIGINT; a second signal ends the process at once."""
    tracing.configure("lavant-worker")
    backend = await open_backend()
    try:
        worker = make(backend)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            worker.drain()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        heartbeat = asyncio.create_task(beat(os.environ, worker.drain))
        on_started()
        try:
            await worker.run(drain_s=drain_s)
        finally:
            heartbeat.cancel()
        return worker
    finally:
        await backend.close()
