"""Threads that do the same work, and the error that ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Workers:
    """Start at once; they end when their work returns."""

    def __init__(self, count: int, work: Callable[[], None], *, name: str) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have ended, and raise what ended one of them, if it was an error."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout_s: float) -> None:
        """For so long at most."""
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():  # a handler may close its own subscription
                thread.join(max(0.0, end_s - time.monotonic()))

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error
