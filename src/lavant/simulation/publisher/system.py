"""The publisher's machine with a simulated store, workers and broker around it.

     work 5 ms, write 1 ms          read 150 ms + 1 ms each            work 5 ms, then 70 ms          70 ms
    ───────────────────────► store ─────────────────────────► worker ───────────────────────► broker ───────► worker

A publication's latency ends when the broker has it; its worker is free when the acknowledgement is back.
"""

from __future__ import annotations

from collections.abc import Callable

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
from lavant.simulation.publisher.broker import SimulatedBroker
from lavant.simulation.publisher.config import SystemConfig
from lavant.simulation.publisher.load import LoadStep, arrivals_us
from lavant.simulation.publisher.store import SimulatedStore

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
    """One publisher under one load. Everything in it is a function of the configurations, the steps and the seed."""

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
            self._calendar,
            system,
            on_stored=lambda tickets: self._handle(Stored(tickets)),
            on_fetched=self._fetched,
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
        """Until the load ends; what is under way then stays there."""
        self._calendar.run(until_us=self.end_us, events_max=EVENTS_MAX)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

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
        if self._wakeup_ms == wakeup_ms:  # else another time has been set since
            self._wakeup_ms = None
            self._handle(Woken())

    # ── what is done about it ─────────────────────────────────────────────────────────────────────────────────────────

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
