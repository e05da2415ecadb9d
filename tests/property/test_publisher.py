"""Any order of events: a publisher loses nothing that is stored, and keeps all its bounds."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lavant.control.publishing import CONTROLLERS, PublisherConfig, PublisherMachine, TuningConfig
from lavant.control.publishing.values import (
    BatchSent,
    Dropped,
    Failed,
    Fetch,
    Fetched,
    PublicationsReceived,
    PublicationsRecovered,
    SendBatch,
    Stimulus,
    Stored,
    StorePublications,
    Woken,
)


class AnyPublisher(RuleBasedStateMachine):
    """The machine with a store, workers and a broker that do things in any order."""

    @initialize(
        controller=st.sampled_from(sorted(CONTROLLERS)),
        workers=st.integers(1, 5),
        reserved=st.integers(0, 4),
        buffer_max=st.integers(1, 4),
        stored_max=st.integers(1, 12),
        write_size_max=st.integers(1, 3),
        transfer_size_max=st.integers(1, 4),
        batch_size=st.integers(1, 6),
        recovered=st.integers(0, 15),
    )
    def start(
        self,
        controller: str,
        workers: int,
        reserved: int,
        buffer_max: int,
        stored_max: int,
        write_size_max: int,
        transfer_size_max: int,
        batch_size: int,
        recovered: int,
    ) -> None:
        self.config = PublisherConfig(
            tuning=TuningConfig(controller=controller, batch_size=batch_size, batch_size_max=8),
            workers=workers,
            workers_reserved=min(reserved, workers - 1),
            buffer_max=buffer_max,
            stored_max=stored_max,
            write_size_max=write_size_max,
            transfer_size_max=transfer_size_max,
        )
        self.now_ms = 0
        self.ticket = 0
        self.dropped: set[int] = set()
        self.writes: list[tuple[int, ...]] = []
        self.store: deque[int] = deque()
        self.fetch: int | None = None
        self.transfers: dict[int, tuple[int, ...]] = {}
        self.published: Counter[int] = Counter()
        self.has_recovered = recovered
        self.machine = PublisherMachine(self.config, now_ms=0)
        for _ in range(recovered):
            self.ticket += 1
            self.store.append(self.ticket)
            self.tell(PublicationsRecovered(self.ticket, 10))

    def tell(self, stimulus: Stimulus) -> None:
        for effect in self.machine.handle(stimulus, self.now_ms):
            match effect:
                case StorePublications(tickets):
                    assert 0 < len(tickets) <= self.config.write_size_max
                    self.writes.append(tickets)
                case Fetch(size_max):
                    assert self.fetch is None
                    assert size_max == self.machine.settings.batch_size
                    self.fetch = size_max
                case SendBatch(transfer, tickets):
                    assert 0 < len(tickets) <= self.config.transfer_size_max
                    assert transfer not in self.transfers
                    self.transfers[transfer] = tickets
                case Dropped(ticket):
                    self.dropped.add(ticket)

    @rule(later_ms=st.integers(0, 400))
    def receive(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.ticket += 1
        self.tell(PublicationsReceived(self.ticket, 10))

    @precondition(lambda self: self.writes)
    @rule(which=st.integers(0, 9), later_ms=st.integers(0, 20))
    def stored(self, which: int, later_ms: int) -> None:
        self.now_ms += later_ms
        tickets = self.writes.pop(which % len(self.writes))
        self.store.extend(tickets)
        self.tell(Stored(tickets))

    @precondition(lambda self: self.fetch is not None)
    @rule(later_ms=st.integers(0, 400))
    def fetched(self, later_ms: int) -> None:
        self.now_ms += later_ms
        assert self.fetch is not None
        size, self.fetch = min(self.fetch, len(self.store)), None
        self.tell(Fetched(tuple(self.store.popleft() for _ in range(size))))

    @precondition(lambda self: self.transfers)
    @rule(which=st.integers(0, 9), later_ms=st.integers(0, 1000))
    def end_well(self, which: int, later_ms: int) -> None:
        self.now_ms += later_ms
        transfer = sorted(self.transfers)[which % len(self.transfers)]
        self.published.update(self.transfers.pop(transfer))
        self.tell(BatchSent(transfer))

    @precondition(lambda self: self.transfers)
    @rule(which=st.integers(0, 9), later_ms=st.integers(0, 1000), retry_after_ms=st.sampled_from([0, 50, 5000]))
    def fail(self, which: int, later_ms: int, retry_after_ms: int) -> None:
        self.now_ms += later_ms
        transfer = sorted(self.transfers)[which % len(self.transfers)]
        del self.transfers[transfer]
        self.tell(Failed(transfer, retry_after_ms))

    @rule()
    def wake(self) -> None:
        wakeup_ms = self.machine.wakeup_ms()
        if wakeup_ms is not None:
            self.now_ms = max(self.now_ms, wakeup_ms)
            self.tell(Woken())

    @invariant()
    def workers_are_never_more_than_there_are(self) -> None:
        assert len(self.writes) + len(self.transfers) <= self.config.workers
        assert len(self.transfers) <= min(self.config.transfers_max, self.config.workers)

    @invariant()
    def bounds_hold_and_counts_add_up(self) -> None:
        figures = self.machine.statistics(self.now_ms)
        assert figures.buffered <= self.config.buffer_max + sum(map(len, self.writes))
        assert figures.waiting <= max(self.config.stored_max, self.has_recovered)
        assert figures.dropped == len(self.dropped)
        assert figures.received + figures.dropped + figures.recovered == self.ticket
        assert figures.received + figures.recovered == figures.buffered + figures.waiting + figures.published
        assert figures.held_bytes == 10 * (figures.buffered + figures.waiting)
        assert figures.in_flight == sum(map(len, self.transfers.values()))

    @invariant()
    def a_wakeup_that_has_come_is_not_asked_for_again(self) -> None:
        before_ms = self.machine.wakeup_ms()
        if before_ms is not None and before_ms <= self.now_ms:
            self.tell(Woken())
            after_ms = self.machine.wakeup_ms()
            assert after_ms is None or after_ms > self.now_ms

    def teardown(self) -> None:
        """When everybody does what is asked for, everything that was not dropped is published, once."""
        if not hasattr(self, "machine"):
            return
        for _ in range(2000):
            if self.writes:
                self.stored(0, 1)
            elif self.fetch is not None:
                self.fetched(1)
            elif self.transfers:
                self.end_well(0, 1)
            elif self.machine.wakeup_ms() is not None and self.machine.statistics(0).waiting:
                self.wake()
        wanted = set(range(1, self.ticket + 1)) - self.dropped
        assert self.published == Counter(dict.fromkeys(wanted, 1))


TestAnyPublisher = AnyPublisher.TestCase
TestAnyPublisher.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
