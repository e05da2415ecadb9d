"""Upkeep of matchers in a thread of its own: when subscriptions have not changed for a while, their indexes are joined.

    engine    change ── change ────────────────── publish: takes effect ──►
                 └ changed ─┘                       ▲
    upkeep                   (quiet) joins ─────────┘

Matching is never held up by it, and it takes a small share of the time, however many subscriptions there are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import TypeAlias

QUIET_S = 0.5
"""So long nothing must have changed: whoever subscribes many does not want the processor to be busy with the first."""
REST = 20
"""How many times as long as it took it rests: where changes come all the time, the share of it stays small."""

TakeEffect: TypeAlias = Callable[[], None]


class IndexMaintenance:
    """`joining` does the work in the thread, and gives what the engine has to call, between two of its own calls."""

    def __init__(self, joining: Callable[[], Iterable[TakeEffect]], *, quiet_s: float = QUIET_S) -> None:
        self._joining = joining
        self._quiet_s = quiet_s
        self._ready: deque[TakeEffect] = deque()
        self._changed, self._closed = Event(), Event()
        self._thread: Thread | None = None

    def changed(self) -> None:
        """Subscriptions came or went."""
        self._changed.set()
        if self._thread is None:
            self._thread = Thread(target=self._work, name="engine-upkeep", daemon=True)
            self._thread.start()

    def take_effect(self) -> None:
        """To be called by the engine when it does nothing else."""
        while self._ready:
            self._ready.popleft()()

    def close(self) -> None:
        self._closed.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            self._changed.wait()
            while self._changed.is_set():
                self._changed.clear()
                if self._closed.wait(self._quiet_s):
                    return
            started_s = time.monotonic()
            for take_effect in self._joining():
                self._ready.append(take_effect)
            if self._closed.wait(REST * (time.monotonic() - started_s)):
                return
