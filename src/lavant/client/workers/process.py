"""A worker as a process: signals, sign of life, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping

from lavant.broker.workflows.limits import WORKER_CHARACTERS_MAX
from lavant.client.workers.backend import Backend
from lavant.client.workers.worker import DRAIN_S, Worker
from lavant.core.worker_pool import HEARTBEAT, HEARTBEAT_S, HEARTBEAT_VARIABLE


async def beat(environment: Mapping[str, str], on_orphaned: Callable[[], None]) -> None:
    """Until it is cancelled. Does nothing if nobody listens: the worker was started by hand, or in a container."""
    number = environment.get(HEARTBEAT_VARIABLE, "")
    if not number.isdecimal():
        return
    pipe = int(number)
    os.set_blocking(pipe, False)
    while True:
        try:
            with contextlib.suppress(BlockingIOError):  # the supervisor is busy; it sees enough when it looks
                os.write(pipe, HEARTBEAT)
        except OSError:
            on_orphaned()
            return
        await asyncio.sleep(HEARTBEAT_S)


def default_name() -> str:
    """Tells people where an attempt was made."""
    return f"{socket.gethostname()}-{os.getpid()}"[-WORKER_CHARACTERS_MAX:]


async def work(
    open_backend: Callable[[], Awaitable[Backend]],
    make: Callable[[Backend], Worker],
    *,
    drain_s: float = DRAIN_S,
    on_started: Callable[[], None] = lambda: None,
) -> Worker:
    """Work until SIGTERM or SIGINT; the second ends the process at once, as it would without this."""
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
        pulse = asyncio.create_task(beat(os.environ, worker.drain))
        on_started()
        try:
            await worker.run(drain_s=drain_s)
        finally:
            pulse.cancel()
        return worker
    finally:
        await backend.close()
