"""A worker's sign of life to the process that started it, over a pipe; and the sign that this one is gone.

    supervisor ◄──a byte a second, as long as the worker's event loop turns── worker
               ──the pipe has no reader any more: the supervisor is gone────► drain

So a worker that hangs can be told from one that is busy, and none outlives its supervisor, however that ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

from lavant.core.crews import BEAT, PULSE_S, PULSE_VARIABLE


async def beat(environment: Mapping[str, str], on_orphaned: Callable[[], None]) -> None:
    """Until it is cancelled. Does nothing if nobody listens: the worker was started by hand, or in a container."""
    number = environment.get(PULSE_VARIABLE, "")
    if not number.isdecimal():
        return
    pipe = int(number)
    os.set_blocking(pipe, False)
    while True:
        try:
            with contextlib.suppress(BlockingIOError):  # the supervisor is busy; it sees enough when it looks
                os.write(pipe, BEAT)
        except OSError:
            on_orphaned()
            return
        await asyncio.sleep(PULSE_S)
