"""Whether a server serves its clients: not before it is ready, and no longer when it stops.

    starting ──begin──► serving ──stop──► stopping

While it starts, the port answers `/healthz` and `/readyz`, and everybody else is told to come again. Meanwhile kernels
are compiled or loaded in a thread, so the event loop goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from lavant.core.errors import NotReady
from lavant.core.warmup import KernelSet, Progress, warm_up

LOCK_TRIED_S = 0.1
"""How often it is looked whether another process has compiled the kernels."""


class Readiness:
    """`fault` says what is wrong with a server that has started, if something is."""

    def __init__(self, fault: Callable[[], str | None]) -> None:
        self._fault = fault
        self._doing: str | None = "reading subscriptions"
        self._is_stopping = False

    @property
    def is_serving(self) -> bool:
        """Whether clients are served; while it stops, those that are there still are."""
        return self._doing is None

    def reason(self) -> str | None:
        """Why it is not ready, if it is not."""
        if self._is_stopping:
            return "the server is stopping"
        return self._fault() if self._doing is None else f"the server is starting: {self._doing}"

    def check(self) -> None:
        """Raise unless clients are served."""
        if self._doing is not None:
            raise NotReady(f"the server is starting: {self._doing}; try again in a moment")

    def starts_with(self, doing: str) -> None:
        self._doing = doing

    def begin(self) -> None:
        self._doing = None

    def stop(self) -> None:
        self._is_stopping = True


class _Ended(Exception):
    """Nobody waits any more."""


async def warm_up_in_thread(sets: Sequence[KernelSet], on_progress: Callable[[Progress], None]) -> None:
    """Warm up beside the event loop, which is told of the progress. If it is cancelled, no further kernel is begun."""
    loop, ended = asyncio.get_running_loop(), threading.Event()

    def tell(progress: Progress) -> None:
        if ended.is_set():
            raise _Ended
        loop.call_soon_threadsafe(on_progress, progress)

    def work() -> None:
        with contextlib.suppress(_Ended):
            warm_up(sets, tell, pause=lambda: time.sleep(LOCK_TRIED_S))

    try:
        await asyncio.shield(loop.run_in_executor(None, work))
    finally:
        ended.set()
