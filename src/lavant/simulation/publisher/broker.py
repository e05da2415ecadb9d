"""A broker with finite room and a subscriber that makes room when it pleases.

A worker that waits for room is blocked: that is how broker-side congestion reaches the publisher.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.kernel.distributions import MS
from lavant.simulation.publisher.config import BrokerConfig


class SimulatedBroker:
    """`on_taken` is told each ticket that it has taken, `on_complete` each transfer of which it has all."""

    def __init__(
        self,
        calendar: Calendar,
        config: BrokerConfig,
        random: Random,
        *,
        on_taken: Callable[[int], None],
        on_complete: Callable[[int], None],
    ) -> None:
        self._calendar = calendar
        self._config = config
        self._random = random
        self._on_taken = on_taken
        self._on_complete = on_complete
        self._free_us = 0
        """When it can begin to take the next transfer."""
        self._held = 0
        """Publications that the subscriber has not read."""
        self._blocked: deque[tuple[int, int, bool]] = deque()
        """Ticket, transfer, and whether it is the transfer's last."""
        if config.room is not None:
            self._subscriber_leaves()

    def offer(self, transfer: int, tickets: tuple[int, ...]) -> None:
        config = self._config
        duration_us = (config.transfer_ms + config.each_ms * len(tickets)) * MS
        self._free_us = max(self._free_us, self._calendar.now_us) + duration_us
        self._calendar.enter(self._free_us, self._accept, transfer, tickets)

    def _accept(self, transfer: int, tickets: tuple[int, ...]) -> None:
        self._blocked.extend((ticket, transfer, ticket == tickets[-1]) for ticket in tickets)
        self._let_in()

    def _let_in(self) -> None:
        room = self._config.room
        while self._blocked and (room is None or self._held < room):
            ticket, transfer, is_last = self._blocked.popleft()
            self._held += 1
            self._on_taken(ticket)
            if is_last:
                self._on_complete(transfer)

    def _after(self, mean_ms: float, action: Callable[..., None], *arguments: int) -> None:
        delay_us = round(self._random.expovariate(1 / mean_ms) * MS)
        self._calendar.enter(self._calendar.now_us + delay_us, action, *arguments)

    def _subscriber_leaves(self) -> None:
        self._after(self._config.subscriber.away_ms, self._subscriber_comes)

    def _subscriber_comes(self) -> None:
        self._read_next(self._held)  # what comes in later waits for the next visit: the gate is closed

    def _read_next(self, left: int) -> None:
        if left == 0:
            self._subscriber_leaves()
        else:
            self._after(self._config.subscriber.read_ms, self._has_read, left)

    def _has_read(self, left: int) -> None:
        self._held -= 1
        self._let_in()
        self._read_next(left - 1)
