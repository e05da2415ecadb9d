"""Evacuation of a broker: moves its subscriptions one by one, several at a time, at a limited rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lavant.cli.common import progress_console
from lavant.core.errors import LavantError

AT_ONCE = 64
"""Moves under way at the same time."""

Ask = Callable[..., Any]
Subscription = tuple[str, str]
"""Namespace and name."""


class Evacuation:
    """Asks the broker itself for what is left, so that it can be stopped and repeated at any time."""

    def __init__(self, ask: Ask, targets: Sequence[str], rate_per_s: float) -> None:
        self._ask = ask
        self._targets = cycle(targets)
        self._rate_per_s = rate_per_s
        self._failed: dict[str, str] = {}
        self._moved = 0
        self._is_stopped = False
        self._lock = threading.Lock()

    def run(self) -> dict[str, Any]:
        """Move what can be moved; returns the figures."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=progress_console(), transient=True) as progress:
            waiting = self._movable()
            task = progress.add_task("moving subscriptions", total=len(waiting))
            try:
                self._move_all(waiting, lambda: progress.advance(task))
            except KeyboardInterrupt:
                self._is_stopped = True
        left = len(self._ask("/federation/subscriptions")["subscriptions"])
        return {"moved": self._moved, "left": left, "failed": self._failed, "is_stopped": self._is_stopped}

    def _movable(self) -> list[Subscription]:
        listed = self._ask("/federation/subscriptions")["subscriptions"]
        for each in listed:
            if not each["is_movable"]:
                name = _text(each["namespace"], each["name"])
                self._failed[name] = "it moves already, or shares its queue with another subscription"
        return [(each["namespace"], each["name"]) for each in listed if each["is_movable"]]

    def _move_all(self, waiting: list[Subscription], advance: Callable[[], None]) -> None:
        """Moves that have begun are waited for, also after Ctrl-C."""
        started_s = time.monotonic()
        places = threading.BoundedSemaphore(AT_ONCE)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for number, each in enumerate(waiting):
                pause_s = started_s + number / self._rate_per_s - time.monotonic()
                if pause_s > 0:
                    time.sleep(pause_s)
                places.acquire()
                move = threads.submit(self._move, each, next(self._targets), advance)
                move.add_done_callback(lambda move: places.release())

    def _move(self, subscription: Subscription, target: str, advance: Callable[[], None]) -> None:
        namespace, name = subscription
        try:
            self._ask("/federation/moves", {"subscription": name, "broker": target, "namespace": namespace})
            reason = None
        except LavantError as error:
            reason = str(error)
        with self._lock:
            if reason is None:
                self._moved += 1
            else:
                self._failed[_text(namespace, name)] = reason
            advance()


def _text(namespace: str, name: str) -> str:
    """One text for each: several namespaces may have a subscription of one name."""
    return f"{namespace}/{name}" if namespace else name
