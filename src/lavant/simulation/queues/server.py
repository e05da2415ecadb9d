"""The real queue server on a simulated host: `BrokerMachine`, `Queues` and `Journal` combined as in the service.

    Call ──► BrokerMachine ──Record──► Journal ──Commit──► disk
      ▲                                 │
      └── Answered ◄──── committed ◄────┴── Written

Like the service, it commits at once when a client waits, and otherwise a little later; creates segments and compacts
the journal concurrently with commits; retries on a full disk; and stops when the disk fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from lavant.broker.machine.effects import Effect as ServerEffect
from lavant.broker.machine.effects import Mistake, Record
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import fold, replay
from lavant.broker.machine.start_time import MARK_FILE, Mark, Reading, decode_mark, encode_mark, start_time
from lavant.broker.machine.state import BrokerState
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.broker.storage.journal import Journal, JournalConfig, SegmentUpkeep, Write, apply_upkeep, compact
from lavant.broker.workflows.limits import JobLimits
from lavant.core.errors import LavantError, StorageFull
from lavant.simulation.kernel import (
    Arrived,
    Background,
    BackgroundFinished,
    Commit,
    Effect,
    Halt,
    Host,
    Machine,
    SendPacket,
    SimulatedDisk,
    Stimulus,
    TimerDue,
    WorkRequested,
    WriteFailed,
    Written,
)
from lavant.simulation.queues.ledger import JournalLedger
from lavant.simulation.queues.protocol import HungUp, SessionId, SimulatedAnswer, SimulatedCall, SimulatedHello, Welcome

LEISURE_MS = 10
FULL_RETRY_MS = 1_000
FOLD_RETRY_MS = 5_000
MARK_MS = 1_000
UPKEEP, FOLD, MARK = "upkeep", "fold", "mark"

MakeServer: TypeAlias = Callable[[BrokerState, int], BrokerMachine]
"""From a recovered broker and the position of the last record."""


class SimulatedClient(msgspec.Struct, frozen=True):
    """The client of a request, as `BrokerMachine` knows it."""

    host: str
    session: SessionId


def boot(
    host: Host,
    config: JournalConfig,
    ledger: JournalLedger,
    make_server: MakeServer,
    machine: Callable[..., Machine] | None = None,
) -> Machine:
    """What starts on the host: a server, or a placeholder if its disk is full or fails."""
    try:
        journal, recovered = Journal.open(host.disk, config)
        broker = replay(recovered.chunks, recovered.records)
    except (StorageFull, OSError) as error:
        return Stillborn(str(error))
    except LavantError as error:
        ledger.unreadable(error)
    ledger.recovered(broker, journal.position)
    ledger.count("recovered" if recovered.chunks is None else "recovered from a snapshot")
    if journal.torn:
        ledger.count("torn")
    broker.queues.limits, broker.queues.job_limits = QueueLimits(), JobLimits()
    server = make_server(broker, journal.position)
    mark = decode_mark(host.disk.read(MARK_FILE)) if MARK_FILE in host.disk.names() else None
    start = start_time(broker.queues.now_ms, mark, _reading(host))
    ledger.started(start.time_ms, host.boots)
    ledger.count(f"time {start.verdict}")
    ahead_ms = start.time_ms - host.now_ms
    make = ServerMachine if machine is None else machine
    return make(server, journal, host, config, ledger, folded=recovered.position, ahead_ms=ahead_ms)


def _reading(host: Host) -> Reading:
    """The clock is not synchronised."""
    return Reading(wall_ms=host.wall_ms, boot=f"{host.name}/{host.boots}", uptime_ms=host.counted_ms)


class Stillborn:
    """A server that could not start, and says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        return [Halt(self._reason)]

    def wakeup_ms(self) -> int | None:
        return 0


class ServerMachine:
    """One start of the server."""

    def __init__(
        self,
        server: BrokerMachine,
        journal: Journal,
        host: Host,
        config: JournalConfig,
        ledger: JournalLedger,
        *,
        folded: int,
        ahead_ms: int,
    ) -> None:
        self.server = server
        self._journal = journal
        self._host = host
        self._disk: SimulatedDisk = host.disk
        self._start = host.incarnation
        self._config = config
        self._ledger = ledger
        self._ahead_ms = ahead_ms
        self._is_open = False
        self._sessions: dict[str, SessionId] = {}
        self._heard: dict[str, set[int]] = {}
        """Numbers of the calls of each client's session."""
        self._write: Write | None = None
        self._leisure_ms: int | None = None
        """The latest time to commit records that no client waits for."""
        self._upkeep: SegmentUpkeep | None = None
        self._retry_ms: int | None = None
        self._folded = folded
        """The last record in a snapshot."""
        self._fold_upto: int | None = None
        self._fold_ms = 0
        """Not before this."""
        self._is_fold_wanted = False
        self._mark_ms = 0
        """When the next time mark is due."""

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        now_ms += self._ahead_ms
        effects: list[Effect] = []
        if not self._is_open:
            self._is_open = True
            effects += self._perform(self.server.open(now_ms), now_ms)
        match stimulus:
            case Arrived(source=source, payload=SimulatedHello(session=session)):
                effects += self._greet(source, session)
            case Arrived(source=source, payload=SimulatedCall() as call):
                effects += self._call(source, call, now_ms)
            case Written():
                effects += self._written(now_ms)
            case WriteFailed(error=error):
                return [*effects, Halt(error)]
            case BackgroundFinished(tag=tag) if tag == MARK:  # if it failed, the old one still serves
                pass
            case BackgroundFinished(tag=tag, result=result, error=error):
                effects += (
                    self._finish_upkeep(error, now_ms) if tag == UPKEEP else self._finish_fold(result, error, now_ms)
                )
            case WorkRequested():
                self._is_fold_wanted = True
            case TimerDue():
                effects += self._perform(self.server.tick(now_ms), now_ms)
                if self._retry_ms is not None and self._retry_ms <= now_ms:
                    self._retry_ms = None
                    self._journal.retry()
            case _:
                raise AssertionError(f"the server has no use for {stimulus}")
        return [*effects, *self._keep_house(now_ms)]

    def wakeup_ms(self) -> int | None:
        if not self._is_open:
            return 0
        times = [self.server.wakeup_ms(), self._retry_ms, self._leisure_ms if self._write is None else None]
        return min((time_ms - self._ahead_ms for time_ms in times if time_ms is not None), default=None)

    # ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _greet(self, source: str, session: SessionId) -> list[Effect]:
        known = self._sessions.get(source)
        if known is not None and session < known:
            return []
        if known is None or known < session:
            if known is not None:
                self.server.gone(SimulatedClient(source, known))
            self._sessions[source] = session
            self._heard[source] = set()
        return [SendPacket(source, Welcome(session, self._start))]

    def _call(self, source: str, call: SimulatedCall, now_ms: int) -> list[Effect]:
        if call.start != self._start or self._sessions.get(source) != call.session:
            return [SendPacket(source, HungUp(call.session))]
        if call.number in self._heard[source]:
            return []
        self._heard[source].add(call.number)
        client = SimulatedClient(source, call.session)
        return self._perform(self.server.request(client, call.number, call.request, None, now_ms), now_ms)

    def _perform(self, effects: Sequence[ServerEffect], now_ms: int) -> list[Effect]:
        sent: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Record):
                position = self._journal.stage(effect.data)
                assert position == effect.position, "the journal and the queues count differently"
                self._ledger.staged(effect.data)
                if self._leisure_ms is None:
                    self._leisure_ms = now_ms + LEISURE_MS
            elif isinstance(effect, Mistake):
                raise effect.error
            else:
                client = effect.client
                assert isinstance(client, SimulatedClient)
                sent.append(SendPacket(client.host, SimulatedAnswer(client.session, effect.number, effect.answer)))
        return sent

    # ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep_house(self, now_ms: int) -> list[Effect]:
        effects = self._commit(now_ms)
        if self._upkeep is None:
            self._upkeep = self._journal.upkeep()
            if self._upkeep is not None:
                upkeep = self._upkeep
                effects.append(Background(lambda: apply_upkeep(self._disk, upkeep), UPKEEP))
        if self._may_fold(now_ms):
            upto = self._fold_upto = self._journal.durable
            self._is_fold_wanted = False
            effects.append(Background(lambda: compact(self._disk, upto, fold, self._config), FOLD))
        if self._mark_ms <= now_ms:
            self._mark_ms = now_ms + MARK_MS
            mark = Mark(time_ms=now_ms, reading=_reading(self._host))
            effects.append(Background(lambda: self._disk.replace(MARK_FILE, [encode_mark(mark)]), MARK))
        self.server.is_full, self.server.is_exhausted = self._journal.is_full, self._journal.is_exhausted
        return effects

    def _commit(self, now_ms: int) -> list[Effect]:
        journal = self._journal
        if self._write is not None or journal.position == journal.durable:
            return []
        is_due = self._leisure_ms is not None and self._leisure_ms <= now_ms
        if not (is_due or self.server.is_commit_awaited):
            return []
        self._write = journal.begin()
        if self._write is None:  # there is no space now
            self._leisure_ms = now_ms + LEISURE_MS
            return []
        self._leisure_ms = None if self._write.last == journal.position else now_ms
        return [Commit(self._write.name, self._write.offset, self._write.data, self._write.last)]

    def _written(self, now_ms: int) -> list[Effect]:
        assert self._write is not None
        position = self._journal.finish(self._write)
        self._write = None
        self._ledger.committed(position)
        return self._perform(self.server.committed(position, now_ms), now_ms)

    def _finish_upkeep(self, error: Exception | None, now_ms: int) -> list[Effect]:
        upkeep, self._upkeep = self._upkeep, None
        assert upkeep is not None
        if error is None:
            self._journal.finish_upkeep(upkeep)
        elif isinstance(error, StorageFull):
            self._journal.refuse_upkeep(upkeep)
            self._ledger.count("full" if self._journal.is_full else "without room")
            self._retry_ms = now_ms + FULL_RETRY_MS
        else:
            return [Halt(str(error))]
        return []

    def _may_fold(self, now_ms: int) -> bool:
        if self._fold_upto is not None or self._upkeep is not None or now_ms < self._fold_ms:
            return False
        return self._journal.wants_compaction or (self._is_fold_wanted and self._journal.durable > self._folded)

    def _finish_fold(self, size_bytes: int, error: Exception | None, now_ms: int) -> list[Effect]:
        upto, self._fold_upto = self._fold_upto, None
        assert upto is not None
        if error is None:
            self._journal.adopt(upto, size_bytes)
            self._ledger.count("compacted")
            self._folded = upto
        elif isinstance(error, StorageFull | OSError):
            self._fold_ms = now_ms + FOLD_RETRY_MS
        elif isinstance(error, LavantError):
            self._ledger.unreadable(error)
        else:
            raise error
        return []
