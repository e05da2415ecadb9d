"""The data store: does one thing at a time, and writes come before reads.

"Auto-tuned Publisher in a Pub/Sub System", Section III-d: writes have priority, but do not interrupt a read; a read has
a fixed cost, and one for each publication.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.kernel.distributions import MS
from lavant.simulation.publisher.config import SystemConfig


class SimulatedStore:
    """`on_stored` and `on_fetched` are told the tickets when something is done."""

    def __init__(
        self,
        calendar: Calendar,
        config: SystemConfig,
        *,
        on_stored: Callable[[tuple[int, ...]], None],
        on_fetched: Callable[[tuple[int, ...]], None],
    ) -> None:
        self._calendar = calendar
        self._config = config
        self._on_stored = on_stored
        self._on_fetched = on_fetched
        self._content: deque[int] = deque()
        self._writes: deque[tuple[int, ...]] = deque()
        self._fetch_size: int | None = None
        self._is_busy = False

    def write(self, tickets: tuple[int, ...]) -> None:
        self._writes.append(tickets)
        self._go_on()

    def fetch(self, size_max: int) -> None:
        assert self._fetch_size is None, "the publisher fetches one batch at a time"
        self._fetch_size = size_max
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy:
            return
        config = self._config
        if self._writes:
            tickets = self._writes.popleft()
            self._start(config.write_ms * len(tickets), self._written, tickets)
        elif self._fetch_size is not None:
            tickets = tuple(islice(self._content, self._fetch_size))
            self._fetch_size = None
            self._start(config.read_ms + config.read_each_ms * len(tickets), self._read, tickets)

    def _start(self, duration_ms: int, done: Callable[[tuple[int, ...]], None], tickets: tuple[int, ...]) -> None:
        self._is_busy = True
        self._calendar.enter(self._calendar.now_us + duration_ms * MS, done, tickets)

    def _written(self, tickets: tuple[int, ...]) -> None:
        self._is_busy = False
        self._content.extend(tickets)
        self._go_on()
        self._on_stored(tickets)

    def _read(self, tickets: tuple[int, ...]) -> None:
        self._is_busy = False
        for _ in tickets:
            self._content.popleft()
        self._go_on()
        self._on_fetched(tickets)
