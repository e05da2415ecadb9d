"""Transfers to the broker: what is ready, what is in flight, and pauses after failures.

A failed transfer is repeated before anything new, and never lost. A failure says more about the broker than about the
publications: so everything pauses, and then one transfer at a time is tried until one succeeds. A transfer that fails
again goes behind all other failed ones, so that it does not keep them from being tried.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.values import SendBatch

_GOLDEN = 0x9E3779B97F4A7C15
_BITS = 64
_DOUBLINGS_MAX = 40
"""More would exceed any maximum, and overflow."""


def pause_ms(failures: int, config: PublisherConfig) -> int:
    """After so many consecutive failures: between half of the nominal pause and all of it.

    >>> config = PublisherConfig(backoff_ms_min=100, backoff_ms_max=1000)
    >>> [50 << n <= pause_ms(n + 1, config) <= 100 << n for n in range(4)], 500 <= pause_ms(10**6, config) <= 1000
    ([True, True, True, True], True)
    """
    nominal_ms = min(config.backoff_ms_min << min(failures - 1, _DOUBLINGS_MAX), config.backoff_ms_max)
    scattered = (config.jitter_seed + failures) * _GOLDEN % (1 << _BITS)  # multiplicative hashing
    return max(1, nominal_ms - (nominal_ms // 2) * scattered // (1 << _BITS))


class Transfer(NamedTuple):
    """One in flight."""

    tickets: tuple[int, ...]
    began_ms: int
    rivals: int
    """Others in flight when it began."""


class Transfers:
    """Publications from when they are fetched until the broker has them."""

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config
        self._fresh: deque[int] = deque()
        self._failed: deque[tuple[int, ...]] = deque()
        """Whole transfers: repeated unchanged, so that the broker can recognise a repetition."""
        self._failed_publications = 0
        self._under_way: dict[int, Transfer] = {}
        self._last = 0
        """Number of the last transfer."""
        self._last_before_failure = 0
        """Number of the last transfer before the latest failure: it says nothing about the time since."""
        self._failures = 0
        """Consecutive failures."""
        self._paused_until_ms: int | None = None
        self._progress_ms = 0
        """When a transfer ended, or the first one began."""
        self.publications_under_way = 0

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def size_mean(self) -> int:
        """Mean number of publications of a transfer in flight; at least 1."""
        return max(1, self.publications_under_way // max(1, len(self._under_way)))

    @property
    def ready(self) -> int:
        """Publications that could be sent."""
        return len(self._fresh) + self._failed_publications

    @property
    def has_fresh(self) -> bool:
        """Workers have not yet taken all of the latest batch."""
        return bool(self._fresh)

    def silence_ms(self, now_ms: int) -> int:
        return now_ms - self._progress_ms if self._under_way else 0

    def wakeup_ms(self) -> int | None:
        """The end of a pause, if there is something to send then."""
        return self._paused_until_ms if self.ready else None

    def is_paused(self, now_ms: int) -> bool:
        if self._paused_until_ms is not None and now_ms >= self._paused_until_ms:
            self._paused_until_ms = None
        return self._paused_until_ms is not None

    def add(self, tickets: tuple[int, ...]) -> None:
        self._fresh.extend(tickets)

    def limit(self, transfers_max: int) -> int:
        """How many may be in flight; after a failure, one to see whether the broker is back."""
        return 1 if self._failures else min(transfers_max, self._config.transfers_max)

    def begin(self, now_ms: int, *, size_max: int) -> SendBatch:
        """Failed transfers go first, unchanged; else up to `size_max` fresh publications."""
        if self._failed:
            tickets = self._failed.popleft()
            self._failed_publications -= len(tickets)
        else:
            tickets = tuple(islice(self._fresh, size_max))
            for _ in tickets:
                self._fresh.popleft()
        if not self._under_way:
            self._progress_ms = now_ms
        self._last += 1
        self._under_way[self._last] = Transfer(tickets, now_ms, len(self._under_way))
        self.publications_under_way += len(tickets)
        return SendBatch(self._last, tickets)

    def succeed(self, number: int, now_ms: int) -> Transfer:
        transfer = self._end(number, now_ms)
        if number > self._last_before_failure:
            self._failures = 0
        return transfer

    def fail(self, number: int, now_ms: int, *, retry_after_ms: int) -> Transfer:
        transfer = self._end(number, now_ms)
        self._failed.append(transfer.tickets)
        self._failed_publications += len(transfer.tickets)
        if number > self._last_before_failure:
            self._failures += 1
            self._last_before_failure = self._last
        until_ms = now_ms + max(retry_after_ms, pause_ms(self._failures, self._config))
        self._paused_until_ms = max(until_ms, self._paused_until_ms or until_ms)
        return transfer

    def _end(self, number: int, now_ms: int) -> Transfer:
        transfer = self._under_way.pop(number)
        self.publications_under_way -= len(transfer.tickets)
        self._progress_ms = now_ms
        return transfer
