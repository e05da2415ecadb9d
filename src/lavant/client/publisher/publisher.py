"""The publisher: stores the publications of an application, and sends them to a broker.

    publish() ─► buffer ─► storing thread ─► journal ─► worker threads ─► transport ─► broker
                  finite    one write and sync           as many as the controller allows
                            for all that is there

`PublisherMachine` makes all decisions, here and in virtual time. This module adds clock, threads, disk and transport.
One lock guards the machine and its state; files and the network are never used under it.

At least once: stored publications are published in the end, also after a crash. Those in flight when the process ended
may be published twice, with the same id.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Self

import msgspec

from lavant import tracing
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import JournalConfig
from lavant.client.publisher.records import encode_publication
from lavant.client.publisher.send_threads import SendThreads, SentBatch
from lavant.client.publisher.store import DEFAULT as JOURNAL_DEFAULT
from lavant.client.publisher.store import PublicationStore
from lavant.client.publisher.store_thread import Storing
from lavant.client.publisher.transport import Transport
from lavant.client.values.mirror import from_protocol, given
from lavant.client.values.publisher import Decision, PublisherConfig, PublisherStatistics
from lavant.control import publishing
from lavant.control.publishing import PublisherMachine
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
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, PublisherClosed, StorageFailed
from lavant.core.ids import PublicationId
from lavant.core.publications.publication import Publication

DEFAULT = PublisherConfig(workers=9, workers_reserved=1)
WRITE_SIZE_MAX = 4096
"""Publications stored with one sync."""
CLOSE_S = 30.0

_logger = logging.getLogger(__name__)


def _log_refused(publication: Publication, error: LavantError) -> None:
    _logger.warning("the broker refused publication %s for good: %s", publication.id, error)


class Publisher:
    """Publishes from any number of threads. A directory belongs to one publisher at a time.

    A worker thread calls `on_refused` with publications that the broker refused for good, and waits for it.
    """

    def __init__(
        self,
        transport: Transport,
        directory: Path | str,
        config: PublisherConfig = DEFAULT,
        *,
        journal: JournalConfig = JOURNAL_DEFAULT,
        on_refused: Callable[[Publication, LavantError], None] = _log_refused,
    ) -> None:
        machine_config = given("config", config, PublisherConfig)
        if config.workers_reserved < 1:
            raise InvalidValue("workers_reserved must be at least 1: one worker only stores")
        self._on_refused = on_refused
        self._id_prefix = secrets.token_hex(8)
        self._id_numbers = count(1)
        self._lock = Lock()
        """Guards all attributes below."""
        self._changed = Condition(self._lock)
        """Notified when something was stored or published, or a thread ended."""
        self._time_set = Condition(self._lock)
        self._wakeup_ms: int | None = None
        self._received: dict[int, tuple[Publication, bytes]] = {}
        """Publications that are not durable yet, with their encoding."""
        self._stored: dict[int, Publication] = {}
        """Publications that are durable and not published."""
        self._unfetched: deque[int] = deque()
        """Tickets in `_stored` that the machine has not fetched."""
        self._under_way: dict[int, tuple[int, ...]] = {}
        """Tickets by transfer."""
        self._settled: list[int] = []
        """Tickets that were published, and the store has not recorded it."""
        self._failure: StorageFailed | None = None
        self._is_failing = False
        """Whether the last transfer failed and was logged."""
        self._is_closing = False
        self._is_closed = False
        self._open(Path(directory), journal)
        self._machine = PublisherMachine(_for_machine(machine_config), now_ms=_now_ms())
        self._sending = SendThreads(transport, on_sent=self._sent)
        self._storing = Storing(
            self._store, on_stored=self._was_stored, on_failed=self._fail, take_settled=self._take_settled
        )
        self._timing = Thread(target=self._keep_time, name="lavant-publisher-timer", daemon=True)
        self._recover()
        self._timing.start()

    # ── for applications ──────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, publication: Publication, *, wait_s: float = 0.0) -> bool:
        """Takes a publication, to be stored and published soon. One without an id gets one, and one without a trace
        belongs to that of the current span.

        If the buffer is full, waits up to `wait_s` seconds; False if it stayed full and the publication was dropped.
        Raises `LimitExceeded` if it is too large, `StorageFailed` if the disk has failed, and `PublisherClosed`.
        """
        if not publication.id:
            name = PublicationId(f"{self._id_prefix}-{next(self._id_numbers)}")
            publication = msgspec.structs.replace(publication, id=name)
        if publication.trace is None and tracing.is_on():
            publication = msgspec.structs.replace(publication, trace=tracing.current())
        encoded = encode_publication(publication)
        if len(encoded) > self._store.publication_bytes_max:
            raise LimitExceeded(
                f"publication {publication.id} has {len(encoded)} bytes when stored, at most "
                f"{self._store.publication_bytes_max} are allowed; send less, or set larger segments of the journal"
            )
        with self._lock:
            if wait_s > 0:
                self._changed.wait_for(lambda: self._machine.has_room or self._takes_nothing, wait_s)
            self._require_open()
            self._ticket += 1
            ticket = self._ticket
            self._received[ticket] = (publication, encoded)
            self._handle(PublicationsReceived(ticket, len(encoded)))
            return ticket in self._received

    def flush(self, wait_s: float) -> bool:
        """Waits until everything taken so far is durable; False if that takes longer than `wait_s` seconds."""
        with self._lock:
            last = self._ticket

            def is_durable() -> bool:
                return next(iter(self._received), last + 1) > last  # they are stored in the order of their tickets

            self._changed.wait_for(lambda: is_durable() or self._failure is not None, wait_s)
            if self._failure is not None:
                raise self._failure
            return is_durable()

    def statistics(self) -> PublisherStatistics:
        with self._lock:
            return from_protocol(PublisherStatistics, self._machine.statistics(_now_ms()))

    def decisions(self) -> Sequence[Decision]:
        """The latest decisions of the controller, the oldest first."""
        with self._lock:
            return [from_protocol(Decision, each) for each in self._machine.decisions()]

    def close(self, wait_s: float = CLOSE_S) -> bool:
        """Takes no more, waits up to `wait_s` seconds until everything is published, and returns whether it is.

        The rest is published when a publisher opens the directory again.
        """
        deadline_s = time.monotonic() + wait_s
        with self._lock:
            self._is_closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_drained or self._is_closed, wait_s)
            if self._is_closed:
                return not self._received and not self._stored
            self._is_closed = True
            self._time_set.notify_all()
            self._changed.notify_all()
        self._sending.close(max(0.0, deadline_s - time.monotonic()))
        self._storing.close()
        self._timing.join()
        self._disk.close()
        with self._lock:
            if self._received:
                _logger.error("%d publications could not be stored, and are lost", len(self._received))
            return not self._received and not self._stored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, directory: Path, journal: JournalConfig) -> None:
        self._disk = FileDisk(directory)
        try:
            named = msgspec.structs.replace(journal, directory=str(directory))
            new_id = secrets.randbits(64)
            self._store = PublicationStore(self._disk, named, new_id=new_id, unpublished=self._unpublished)
        except BaseException:
            self._disk.close()
            raise
        self._ticket = self._store.last_ticket

    def _recover(self) -> None:
        with self._lock:
            for ticket, publication in self._store.recovered.items():
                self._stored[ticket] = publication
                self._unfetched.append(ticket)
                self._handle(PublicationsRecovered(ticket, len(encode_publication(publication))))
            self._store.recovered.clear()

    # ── from threads ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _was_stored(self, tickets: tuple[int, ...]) -> None:
        with self._lock:
            for ticket in tickets:
                self._stored[ticket], _ = self._received.pop(ticket)
            self._unfetched.extend(tickets)
            self._handle(Stored(tickets))

    def _sent(self, sent: SentBatch) -> None:
        with self._lock:
            tickets = self._under_way.pop(sent.transfer)
            refused = [(self._stored[tickets[place]], error) for place, error in sent.refused.items()]
            if sent.error is None:
                self._settle(tickets)
                self._handle(BatchSent(sent.transfer, len(refused)))
            else:
                self._handle(Failed(sent.transfer, sent.retry_after_ms))
            self._note_outcome(sent.error)
        for publication, reason in refused:
            try:
                self._on_refused(publication, reason)
            except Exception:  # an error of the application must not end a worker
                _logger.exception("on_refused failed for publication %s", publication.id)

    def _settle(self, tickets: tuple[int, ...]) -> None:
        for ticket in tickets:
            del self._stored[ticket]
        if not self._settled and not self._is_closed:
            self._storing.settle()
        self._settled.extend(tickets)

    def _take_settled(self) -> Sequence[int]:
        with self._lock:
            settled, self._settled = self._settled, []
            return settled

    def _unpublished(self) -> Sequence[tuple[int, Publication]]:
        with self._lock:
            received = ((ticket, publication) for ticket, (publication, _) in self._received.items())
            return list(chain(self._stored.items(), received))

    def _fail(self, failure: StorageFailed) -> None:
        _logger.error("%s", failure)
        with self._lock:
            self._failure = failure
            self._changed.notify_all()

    def _keep_time(self) -> None:
        with self._lock:
            while not self._is_closed:
                left_ms = None if self._wakeup_ms is None else self._wakeup_ms - _now_ms()
                if left_ms is not None and left_ms <= 0:
                    self._handle(Woken())
                else:
                    self._time_set.wait(None if left_ms is None else left_ms / 1000)

    # ── with the lock ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _takes_nothing(self) -> bool:
        return self._is_closing or self._failure is not None

    @property
    def _is_drained(self) -> bool:
        """Whether nothing is left to publish."""
        return not self._stored and (not self._received or self._failure is not None)

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closing:
            raise PublisherClosed("the publisher is closed; open another one on its directory")

    def _handle(self, stimulus: Stimulus) -> None:
        if self._is_closed:
            return  # too late: the rest is published the next time
        stimuli = deque([stimulus])
        while stimuli:
            for effect in self._machine.handle(stimuli.popleft(), _now_ms()):
                match effect:
                    case StorePublications(tickets):
                        self._storing.store([(ticket, self._received[ticket][1]) for ticket in tickets])
                    case Fetch(size_max):
                        size = min(size_max, len(self._unfetched))
                        stimuli.append(Fetched(tuple(self._unfetched.popleft() for _ in range(size))))
                    case SendBatch(transfer, tickets):
                        self._under_way[transfer] = tickets
                        self._sending.send(transfer, [self._stored[ticket] for ticket in tickets])
                    case Dropped(ticket):
                        del self._received[ticket]
        self._changed.notify_all()
        wakeup_ms = self._machine.wakeup_ms()
        if wakeup_ms != self._wakeup_ms:
            self._wakeup_ms = wakeup_ms
            self._time_set.notify()

    def _note_outcome(self, error: Exception | None) -> None:
        """Logs the first failure and the recovery, not each failure."""
        if error is not None and not self._is_failing:
            _logger.warning("a transfer to the broker failed and is retried until it succeeds: %s", error)
        elif error is None and self._is_failing:
            _logger.warning("the broker takes publications again")
        self._is_failing = error is not None


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _for_machine(config: publishing.PublisherConfig) -> publishing.PublisherConfig:
    """One storing worker with unbounded batches; jitter keeps publishers from retrying at the same time."""
    return msgspec.structs.replace(
        config, writes_max=1, write_size_max=WRITE_SIZE_MAX, jitter_seed=secrets.randbits(32)
    )
