"""The receiving side: a finite buffer, and workers that store what is in it.

"Auto-tuned Publisher in a Pub/Sub System", Section III: the main receive thread and its buffer. Receiving comes first
(Section IV-A): a worker that becomes free looks into the buffer before it publishes anything.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from lavant.control.tuning.config import PublisherConfig
from lavant.control.tuning.values import Store


class Receiving:
    """Publications from the moment they are received until they are stored."""

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config
        self._buffer: deque[int] = deque()
        self.writes = 0
        """Workers that store."""
        self.writing = 0
        """Publications that they store."""

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    @property
    def has_room(self) -> bool:
        return len(self._buffer) < self._config.buffer_max

    def take(self, ticket: int) -> None:
        self._buffer.append(ticket)

    def next_write(self, *, workers_free: int, stored: int) -> Store | None:
        """For a worker that is free; None if there is nothing to store, nobody to do it, or no room for it."""
        config = self._config
        room = config.stored_max - stored - self.writing
        if not (self._buffer and workers_free > 0 and room > 0 and self.writes < config.writes_max):
            return None
        size = min(len(self._buffer), config.write_size_max, room)
        tickets = tuple(islice(self._buffer, size))
        for _ in tickets:
            self._buffer.popleft()
        self.writes += 1
        self.writing += size
        return Store(tickets)

    def stored(self, count: int) -> None:
        self.writes -= 1
        self.writing -= count
