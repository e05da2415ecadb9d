"""The state machine of a publisher: `handle(stimulus, now_ms)` returns effects, `wakeup_ms()` when to call it again.

    received ─► buffer ─ Store ─► stored ─ Fetch ─► ready ─ Publish ─► published
                  │      worker             │                worker
               dropped                    N, T_poll          └─ failed: ready again, after a pause

"Auto-tuned Publisher in a Pub/Sub System", Section III. Sources, store, workers and broker are outside: threads and
files in `lavant.client.publisher`, virtual time in `lavant.simulation.publisher`. Workers are only counted here.

Differences from the paper: a failed transfer is repeated; workers can be reserved for receiving, since priority alone
cannot free one that the broker blocks; a worker may take several publications at once, in both directions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from lavant.control.publishing.batching import BatchScheduler
from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.controllers.interface import BatchSettings, Figures, TransferEnded
from lavant.control.publishing.controllers.registry import new_controller
from lavant.control.publishing.estimators import Capacity, LoadEstimate
from lavant.control.publishing.statistics import LatestLatencies, PublisherStatistics
from lavant.control.publishing.transfers import Transfers
from lavant.control.publishing.values import (
    BatchSent,
    Dropped,
    Effect,
    Failed,
    Fetch,
    Fetched,
    PublicationsReceived,
    PublicationsRecovered,
    Stimulus,
    Stored,
    StorePublications,
    TuningDecided,
)
from lavant.core.decisions import Decision


class Receiving:
    """Publications from arrival until they are stored."""

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

    def next_write(self, *, workers_free: int, stored: int) -> StorePublications | None:
        """A write for a free worker; None if there is nothing to store, no worker, or no room."""
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
        return StorePublications(tickets)

    def stored(self, count: int) -> None:
        self.writes -= 1
        self.writing -= count


DECISIONS_KEPT = 256


class HeldPublication(NamedTuple):
    """A publication's data until it is published."""

    received_ms: int | None
    """None if it was recovered, when the time is unknown."""
    size_bytes: int


class PublisherMachine:
    """One publisher.

    >>> from lavant.control.publishing.values import SendBatch
    >>> machine = PublisherMachine(PublisherConfig(), now_ms=0)
    >>> machine.handle(PublicationsReceived(1), 0)
    [StorePublications(tickets=(1,))]
    >>> machine.handle(Stored((1,)), 6)
    [Fetch(size_max=1000)]
    >>> machine.handle(Fetched((1,)), 157)
    [SendBatch(transfer=1, tickets=(1,))]
    >>> machine.handle(BatchSent(1), 302)
    []
    >>> machine.statistics(302).latencies.mean_ms
    302.0
    """

    def __init__(self, config: PublisherConfig, *, now_ms: int) -> None:
        self.config = config
        self._controller = new_controller(config)
        self._load = LoadEstimate(gain=config.tuning.load_gain, now_ms=now_ms)
        self._capacity = Capacity(gain=config.tuning.capacity_gain)
        self._receiving = Receiving(config)
        self._gathering = BatchScheduler(
            wait_ms_max=config.wait_ms_max,
            poll_ms_min=config.tuning.poll_ms_min,
            now_ms=now_ms,
            poll_ms=self._controller.settings.poll_ms,
        )
        self._transfers = Transfers(config)
        self._latencies = LatestLatencies()
        self._decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        self._held: dict[int, HeldPublication] = {}
        """What is not published yet."""
        self._held_bytes = 0
        self._unfetched = 0
        """Stored, and not fetched yet."""
        self._is_fetching = False
        self._received = self._dropped = self._recovered = self._stored = 0
        self._published = self._refused = self._retries = self._failures = 0

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def has_room(self) -> bool:
        """Whether the next publication would be accepted."""
        return self._receiving.has_room and self._held_bytes < self.config.held_bytes_max

    @property
    def waiting(self) -> int:
        """Publications stored and not published yet."""
        return self._unfetched + self._transfers.ready + self._transfers.publications_under_way

    @property
    def settings(self) -> BatchSettings:
        return self._controller.settings

    def decisions(self) -> Sequence[Decision]:
        """The latest decisions, the oldest first."""
        return tuple(self._decisions)

    def wakeup_ms(self) -> int | None:
        """When to call `handle` again, if nothing happens before."""
        times = (self._gathering.wakeup_ms(self.settings), self._transfers.wakeup_ms())
        return min((time for time in times if time is not None), default=None)

    def statistics(self, now_ms: int) -> PublisherStatistics:
        settings = self.settings
        return PublisherStatistics(
            controller=self._controller.name,
            received=self._received,
            dropped=self._dropped,
            recovered=self._recovered,
            stored=self._stored,
            published=self._published,
            refused=self._refused,
            retries=self._retries,
            failures=self._failures,
            buffered=self._receiving.buffered + self._receiving.writing,
            waiting=self.waiting,
            held_bytes=self._held_bytes,
            in_flight=self._transfers.publications_under_way,
            transfers=len(self._transfers),
            batch_size=settings.batch_size,
            poll_ms=settings.poll_ms,
            transfers_max=settings.transfers_max,
            load_per_s=self._load.estimate(now_ms),
            capacity_per_s=self._capacity.per_s,
            latencies=self._latencies.summary(),
        )

    # ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """The effects of a stimulus."""
        effects: list[Effect] = []
        match stimulus:
            case PublicationsReceived(ticket, size_bytes):
                self._receive(ticket, size_bytes, now_ms, effects)
            case Stored(tickets):
                self._receiving.stored(len(tickets))
                self._stored += len(tickets)
                self._unfetched += len(tickets)
            case Fetched(tickets):
                self._is_fetching = False
                self._unfetched -= len(tickets)
                self._transfers.add(tickets)
            case BatchSent(number, refused):
                self._succeed(number, refused, now_ms, effects)
            case Failed(number, retry_after_ms):
                self._fail(number, retry_after_ms, now_ms, effects)
            case PublicationsRecovered(ticket, size_bytes):
                self._hold(ticket, HeldPublication(None, size_bytes))
                self._recovered += 1
                self._unfetched += 1
            case _:  # woken: all that is due is done below
                pass
        self._store(effects)
        self._send(now_ms, effects)
        self._gather(now_ms, effects)
        return effects

    def _hold(self, ticket: int, held: HeldPublication) -> None:
        self._held[ticket] = held
        self._held_bytes += held.size_bytes

    def _receive(self, ticket: int, size_bytes: int, now_ms: int, effects: list[Effect]) -> None:
        self._load.arrive()
        if not self.has_room:
            self._dropped += 1
            effects.append(Dropped(ticket))
            return
        self._received += 1
        self._hold(ticket, HeldPublication(now_ms, size_bytes))
        self._receiving.take(ticket)

    def _succeed(self, number: int, refused: int, now_ms: int, effects: list[Effect]) -> None:
        was_held = self._transfers.ready > 0
        in_flight = self._transfers.publications_under_way
        transfer = self._transfers.succeed(number, now_ms)
        self._published += len(transfer.tickets)
        self._refused += refused
        for ticket in transfer.tickets:
            held = self._held.pop(ticket)
            self._held_bytes -= held.size_bytes
            if held.received_ms is not None:
                self._latencies.add(now_ms - held.received_ms)
        duration_ms = now_ms - transfer.began_ms
        self._capacity.add(in_flight=in_flight, duration_ms=duration_ms)
        ended = TransferEnded(len(transfer.tickets), duration_ms, transfer.rivals, was_held)
        self._decide(self._controller.published(self._figures(now_ms), ended), effects)

    def _fail(self, number: int, retry_after_ms: int, now_ms: int, effects: list[Effect]) -> None:
        transfer = self._transfers.fail(number, now_ms, retry_after_ms=retry_after_ms)
        self._failures += 1
        self._retries += len(transfer.tickets)
        self._decide(self._controller.failed(self._figures(now_ms)), effects)

    # ── what can be done ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _workers_free(self) -> int:
        return self.config.workers - self._receiving.writes - len(self._transfers)

    def _store(self, effects: list[Effect]) -> None:
        """Receiving comes first."""
        while (write := self._receiving.next_write(workers_free=self._workers_free, stored=self.waiting)) is not None:
            effects.append(write)

    def _send(self, now_ms: int, effects: list[Effect]) -> None:
        """Spread ready publications over the transfers that may be in flight."""
        transfers = self._transfers
        if not transfers.ready or transfers.is_paused(now_ms) or self._workers_free == 0:
            return
        self._decide(self._controller.wants_to_send(self._figures(now_ms)), effects)
        limit = transfers.limit(self.settings.transfers_max)
        size_max = min(math.ceil(transfers.ready / limit), self.config.transfer_size_max)
        while transfers.ready and len(transfers) < limit and self._workers_free > 0:
            effects.append(transfers.begin(now_ms, size_max=size_max))

    def _gather(self, now_ms: int, effects: list[Effect]) -> None:
        gathering = self._gathering
        reads_ahead = self.settings.poll_ms == 0
        if not gathering.is_idle and not self._is_fetching and (reads_ahead or not self._transfers.has_fresh):
            done = gathering.end(now_ms)
            figures = self._figures(now_ms)
            decision = self._controller.handed_over(
                figures, took_ms=done.took_ms, in_time=done.in_time, was_full=done.was_full
            )
            self._decide(decision, effects)
        if reads_ahead:
            if gathering.is_idle and self._unfetched and self._transfers.ready < self.settings.batch_size:
                self._fetch(now_ms, effects, is_full=self._unfetched >= self.settings.batch_size)
        elif gathering.is_poll_due(now_ms):
            self._poll(now_ms, effects)

    def _poll(self, now_ms: int, effects: list[Effect]) -> None:
        self._load.sample(now_ms)
        if self._unfetched >= self.settings.batch_size:
            self._fetch(now_ms, effects, is_full=True)
            return
        self._decide(self._controller.fell_short(self._figures(now_ms)), effects)
        if self._unfetched and self._gathering.has_waited(now_ms):
            self._fetch(now_ms, effects, is_full=False)
        else:
            self._gathering.poll_again(now_ms, self.settings)

    def _fetch(self, now_ms: int, effects: list[Effect], *, is_full: bool) -> None:
        if now_ms - self._load.sampled_ms >= self.config.tuning.poll_ms_min:
            self._load.sample(now_ms)
        self._gathering.begin(now_ms, self.settings, is_full=is_full)
        self._is_fetching = True
        effects.append(Fetch(self.settings.batch_size))

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _figures(self, now_ms: int) -> Figures:
        return Figures(
            now_ms=now_ms,
            load_per_s=self._load.per_s,
            capacity_per_s=self._capacity.per_s,
            waiting=self.waiting,
            transfers=len(self._transfers),
            silence_ms=self._transfers.silence_ms(now_ms),
            transfer_size=self._transfers.size_mean,
        )

    def _decide(self, decision: Decision | None, effects: list[Effect]) -> None:
        if decision is not None:
            self._decisions.append(decision)
            effects.append(TuningDecided(decision))
