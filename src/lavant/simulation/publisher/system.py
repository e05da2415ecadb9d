"""The publisher's machine with a simulated store, workers and broker around it.

     work 5 ms, write 1 ms          read 150 ms + 1 ms each            work 5 ms, then 70 ms          70 ms
    ───────────────────────► store ─────────────────────────► worker ───────────────────────► broker ───────► worker

A publication's latency ends when the broker has it; its worker is free when the acknowledgement is back. The store does
writes before reads (Section III-d of the paper); the broker takes transfers one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from random import Random

import msgspec

from lavant.control.publishing import PublisherConfig, PublisherMachine
from lavant.control.publishing.values import (
    BatchSent,
    Dropped,
    Fetch,
    Fetched,
    PublicationsReceived,
    SendBatch,
    Stimulus,
    Stored,
    StorePublications,
    TuningDecided,
    Woken,
)
from lavant.core.decisions import Decision
from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.kernel.distributions import MS, S
from lavant.simulation.kernel.randomness import Randomness
from lavant.simulation.publisher.config import BrokerConfig, SystemConfig
from lavant.simulation.publisher.load import LoadStep, arrivals_us


class SimulatedStore:
    """Calls `on_stored` and `on_fetched` with the tickets when something is done."""

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


class SimulatedBroker:
    """Calls `on_taken` with each ticket it has taken, `on_complete` with each completed transfer."""

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
        self._read_next(self._held)  # later publications wait for the next visit: the gate is closed

    def _read_next(self, left: int) -> None:
        if left == 0:
            self._subscriber_leaves()
        else:
            self._after(self._config.subscriber.read_ms, self._has_read, left)

    def _has_read(self, left: int) -> None:
        self._held -= 1
        self._let_in()
        self._read_next(left - 1)


EVENTS_MAX = 50_000_000


class Taken(msgspec.Struct, frozen=True):
    """A publication that the broker has."""

    received_us: int
    latency_us: int


class SimulatedBatch(msgspec.Struct, frozen=True):
    """A batch that was read from the store, and N at that time."""

    time_us: int
    size: int
    batch_size: int


class PublisherSystem:
    """One publisher under one load, a function of the configurations, the steps and the seed."""

    def __init__(
        self, publisher: PublisherConfig, steps: tuple[LoadStep, ...], *, system: SystemConfig, seed: int
    ) -> None:
        randomness = Randomness(seed)
        self.taken: list[Taken] = []
        self.batches: list[SimulatedBatch] = []
        self.decisions: list[Decision] = []
        self.dropped = 0
        self.end_us = round(sum(step.duration_s for step in steps) * S)
        self.machine = PublisherMachine(publisher, now_ms=0)
        self._system = system
        self._calendar = Calendar()
        self._store = SimulatedStore(
            self._calendar, system, on_stored=lambda tickets: self._handle(Stored(tickets)), on_fetched=self._fetched
        )
        self._broker = SimulatedBroker(
            self._calendar,
            system.broker,
            randomness.stream("subscriber"),
            on_taken=self._taken,
            on_complete=self._acknowledge,
        )
        self._received_us: dict[int, int] = {}
        self._wakeup_ms: int | None = None
        self._arrivals = arrivals_us(steps, randomness.stream("arrivals"))  # the same for all configurations
        self._tickets = 0
        self._arrive_next()
        self._set_wakeup()

    def run(self) -> None:
        """Run until the load ends; whatever is in flight then stays so."""
        self._calendar.run(until_us=self.end_us, events_max=EVENTS_MAX)

    # ── stimuli
    # ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrive_next(self) -> None:
        time_us = next(self._arrivals, None)
        if time_us is not None:
            self._calendar.enter(time_us, self._arrive)

    def _arrive(self) -> None:
        self._tickets += 1
        self._received_us[self._tickets] = self._calendar.now_us
        self._handle(PublicationsReceived(self._tickets))
        self._arrive_next()

    def _fetched(self, tickets: tuple[int, ...]) -> None:
        self.batches.append(SimulatedBatch(self._calendar.now_us, len(tickets), self.machine.settings.batch_size))
        self._handle(Fetched(tickets))

    def _taken(self, ticket: int) -> None:
        received_us = self._received_us.pop(ticket)
        self.taken.append(Taken(received_us, self._calendar.now_us - received_us))

    def _acknowledge(self, transfer: int) -> None:
        rtt_ms = self._rtt_ms()
        self._after(rtt_ms - rtt_ms // 2, self._handle, BatchSent(transfer))

    def _wake(self, wakeup_ms: int) -> None:
        if self._wakeup_ms == wakeup_ms:  # otherwise the timer has been set again
            self._wakeup_ms = None
            self._handle(Woken())

    # ── effects
    # ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, stimulus: Stimulus) -> None:
        for effect in self.machine.handle(stimulus, self._calendar.now_us // MS):
            match effect:
                case StorePublications(tickets):
                    self._after(self._system.work_ms * len(tickets), self._store.write, tickets)
                case Fetch(size_max):
                    self._store.fetch(size_max)
                case SendBatch(transfer, tickets):
                    delay_ms = self._system.work_ms * len(tickets) + self._rtt_ms() // 2
                    self._after(delay_ms, self._broker.offer, transfer, tickets)
                case Dropped(ticket):
                    self.dropped += 1
                    del self._received_us[ticket]
                case TuningDecided(decision):
                    self.decisions.append(decision)
        self._set_wakeup()

    def _set_wakeup(self) -> None:
        wakeup_ms = self.machine.wakeup_ms()
        if wakeup_ms is not None and wakeup_ms != self._wakeup_ms:
            time_us = max(wakeup_ms * MS, self._calendar.now_us)
            self._calendar.enter(time_us, self._wake, wakeup_ms)
        self._wakeup_ms = wakeup_ms

    def _rtt_ms(self) -> int:
        return self._system.rtt_ms_at(self._calendar.now_us / S)

    def _after(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None:
        self._calendar.enter(self._calendar.now_us + delay_ms * MS, action, *arguments)
