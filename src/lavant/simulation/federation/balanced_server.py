"""A broker of a federation on a simulated host that balances: the real balancing machine, over the real links.

As `service/federation/balancing` does it: measures the load, takes samples, sends the machine's messages as control
frames, and moves subscriptions. Matching takes no virtual time, so the load is computed: a broker of strength 1 needs
`DELAY_S` for each subscription, and sends `BANDWIDTH` bytes a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from lavant.broker.federation.effects import FrameReceived, SendFrame
from lavant.broker.federation.frames import BalancingContent, BrokerMessage
from lavant.broker.federation.migration.machine import MigrationOutcome
from lavant.broker.federation.trace import members_of
from lavant.broker.filters import Filter
from lavant.broker.protocol.federation import BrokerMember, SubscribedRoute
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.timers import earliest
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.control.balancing.cluster import ClusterBalancer
from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.press import PressSample
from lavant.control.balancing.values import (
    BalancingEffect,
    BalancingStatus,
    BalancingStimulus,
    BrokerLoad,
    ControlMessage,
    LoadMeasured,
    LoadReport,
    MessageArrived,
    MovesEnded,
    SampleTaken,
    SendControl,
    SessionDone,
    SessionRequest,
    StartMoves,
    StartSampling,
    StopSampling,
    TimePassed,
    WatchCluster,
    decode_control,
    encode_control,
)
from lavant.core.errors import LavantError
from lavant.simulation.federation.server import FederatedServer
from lavant.simulation.kernel import Effect, Note, Stimulus, WorkRequested

MEASURE_MS = 250
WINDOW_MS = 1_000
DELAY_S = 0.005
"""That a subscription adds to the matching delay of a broker of strength 1."""
BANDWIDTH = 4_000.0
"""Bytes a second of a broker of strength 1."""
PUBLICATION_BYTES = 100
FORGED_SUBSCRIPTIONS = 1 << 40
"""In forged reports: whoever believes one can be told from this."""


class BalancerSeat(msgspec.Struct, frozen=True, kw_only=True):
    """The balancing machine of a broker, made anew at each start, and its surroundings."""

    make: Callable[[], EdgeBalancer | ClusterBalancer]
    cluster: str
    strength: float
    is_on: Callable[[], bool]
    """Whether the operator has balancing on."""


class ForgeMessage(msgspec.Struct, frozen=True):
    """Asks this broker to send something in the name of another one."""

    victim: str
    """Who is to believe it."""
    name: str
    source: str
    """The identity in the frame."""


class _Sampling(msgspec.Struct):
    """Publications that are looked at for a session."""

    request: StartSampling
    ends_ms: int
    subscriptions: list[str]
    filters: list[Filter]
    covering: list[list[Filter]]
    matches: list[tuple[int, list[int]]]
    peers: dict[str, list[int]]
    taken: int = 0

    def see(self, content: Any) -> None:
        if self.taken < self.request.publications:
            rows = [row for row, filter in enumerate(self.filters) if filter.matches(content)]
            self.matches.append((self.taken, rows))
            for peer, filters in zip(self.peers, self.covering, strict=True):
                if any(filter.matches(content) for filter in filters):
                    self.peers[peer].append(self.taken)
            self.taken += 1

    def sample(self, input_rate_per_s: float) -> PressSample:
        return PressSample.of(
            subscriptions=self.subscriptions,
            matches=self.matches,
            peers=self.peers,
            publications=self.taken,
            input_rate_per_s=input_rate_per_s,
            publication_bytes=PUBLICATION_BYTES,
        )


class _Moves(msgspec.Struct):
    """The moves of a session."""

    waiting: set[str]
    moved: int = 0
    failed: int = 0


class BalancedServer(FederatedServer):
    """One start of a broker that balances."""

    def __init__(self, *arguments: Any, seat: BalancerSeat, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.balancer = seat.make()
        self.watched: set[str] = set()
        """Other clusters whose reports the machine wants."""
        self._seat = seat
        self._inbox: list[BrokerMessage] = []
        self._totals: deque[tuple[int, int, int]] = deque()
        self._matched = self._sent_bytes = 0
        self._measure_ms = 0
        self._sampling: _Sampling | None = None
        self._moves: dict[str, _Moves] = {}
        self.node.probe = self._see
        self.node.machine.migrations.on_ended = self._ended

    @property
    def busy_with(self) -> str | None:
        """The session that it is in, within a cluster or between two; empty if it only believes to be in one."""
        return (self.balancer.session or "") if self.balancer.status is BalancingStatus.BUSY else None

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        forged = stimulus.value if isinstance(stimulus, WorkRequested) else None
        local_ms = now_ms + self._ahead_ms
        if isinstance(forged, ForgeMessage):
            return self._forge(forged, local_ms) if self._is_open else []
        effects = super().handle(stimulus, now_ms)
        if self._is_open:
            balanced = self._balance(local_ms)
            effects += [*balanced, *self._keep_house(local_ms)] if balanced else []
        return effects

    def wakeup_ms(self) -> int | None:
        if not self._is_taking_part:
            return super().wakeup_ms()
        own_ms = earliest(self._measure_ms, self.balancer.wakeup_ms())
        assert own_ms is not None
        return earliest(super().wakeup_ms(), own_ms - self._ahead_ms)

    @property
    def _is_taking_part(self) -> bool:
        """A head has nothing to do while balancing is off."""
        return self._seat.is_on() or isinstance(self.balancer, EdgeBalancer)

    def _perform(self, effects: Sequence[Any], now_ms: int) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            if isinstance(effect, FrameReceived) and isinstance(effect.frame, BrokerMessage):
                self._inbox.append(effect.frame)
            else:
                done += super()._perform([effect], now_ms)
        return done

    # ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _balance(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(self.balancer, EdgeBalancer):
            self.balancer.is_on = self._seat.is_on()
        if not self._is_taking_part:
            self._inbox.clear()
            return []
        while self._inbox:
            effects += self._received(self._inbox.pop(0), now_ms)
        if now_ms >= self._measure_ms:
            self._measure_ms = now_ms + MEASURE_MS
            effects += self._tell(LoadMeasured(load=self._load(now_ms)), now_ms)
        sampling = self._sampling
        if sampling is not None and (sampling.taken >= sampling.request.publications or now_ms >= sampling.ends_ms):
            self._sampling = None
            sample = sampling.sample(self._load(now_ms).input_rate_per_s)
            effects += self._tell(SampleTaken(session=sampling.request.session, sample=sample), now_ms)
        for session in [each for each, moves in self._moves.items() if not moves.waiting]:
            moves = self._moves.pop(session)
            self._totals.clear()
            effects += self._tell(MovesEnded(session=session, moved=moves.moved, failed=moves.failed), now_ms)
        wakeup_ms = self.balancer.wakeup_ms()
        if wakeup_ms is not None and now_ms >= wakeup_ms:
            effects += self._tell(TimePassed(), now_ms)
        return effects

    def _tell(self, stimulus: BalancingStimulus, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self.balancer.handle(stimulus, now_ms):
            effects += self._do(effect, now_ms)
        return effects

    def _do(self, effect: BalancingEffect, now_ms: int) -> list[Effect]:
        match effect:
            case SendControl():
                return self._send(effect, now_ms)
            case StartSampling():
                self._start_sampling(effect, now_ms)
            case StopSampling():
                if self._sampling is not None and self._sampling.request.session == effect.session:
                    self._sampling = None
            case StartMoves():
                return self._start_moves(effect, now_ms)
            case WatchCluster():
                (self.watched.add if effect.is_on else self.watched.discard)(effect.cluster)
        return []

    def _received(self, frame: BrokerMessage, now_ms: int) -> list[Effect]:
        assert isinstance(frame.content, BalancingContent)
        name = next((each.name for each in members_of(self.node.machine) if each.identity == frame.source), "")
        try:
            message = decode_control(frame.content.message, name)
        except LavantError:
            return [Note("rejected")]
        if isinstance(message, LoadReport) and not self._wants(message):
            return []
        effects: list[Effect] = []
        if isinstance(message, SessionRequest):
            load = LoadMeasured(load=self._load(now_ms), covering=tuple(self._covering(name)))
            effects += self._tell(load, now_ms)
        elif isinstance(message, SessionDone) and message.moved:
            self._totals.clear()
        return effects + self._tell(MessageArrived(message=message), now_ms)

    def _wants(self, report: LoadReport) -> bool:
        """Reports are published to all; a broker has subscribed to those of its cluster, and of others it watches."""
        return report.is_of_cluster or report.cluster == self._seat.cluster or report.cluster in self.watched

    def _send(self, effect: SendControl, now_ms: int) -> list[Effect]:
        members = members_of(self.node.machine)
        to = [each for each in members if effect.to is None or each.name == effect.to]
        return [sent for each in to for sent in self._send_to(each, effect.message, now_ms)]

    def _send_to(
        self, member: BrokerMember, message: ControlMessage, now_ms: int, *, source: str | None = None
    ) -> list[Effect]:
        machine = self.node.machine
        session = machine.migrations.session_to(member.identity)
        if session is None:
            return []
        content = BalancingContent(encode_control(message))
        frame = BrokerMessage(machine.own.identity if source is None else source, member.identity, content)
        return self._perform([SendFrame(session.connection, frame)], now_ms)

    def _forge(self, forged: ForgeMessage, now_ms: int) -> list[Effect]:
        load = BrokerLoad(subscriptions=FORGED_SUBSCRIPTIONS)
        report = LoadReport(
            broker=forged.name, cluster=self._seat.cluster, status=BalancingStatus.OK, load=load, number=1 << 60
        )
        members = [each for each in members_of(self.node.machine) if each.name == forged.victim]
        return [sent for each in members for sent in self._send_to(each, report, now_ms, source=forged.source)]

    # ── load and samples ──────────────────────────────────────────────────────────────────────────────────────────────

    def _see(self, content: Any, part: FanOutBatch) -> None:
        self._matched += 1
        self._sent_bytes += PUBLICATION_BYTES * len(np.frombuffer(part.places, INTEGERS))
        if self._sampling is not None:
            self._sampling.see(content)

    def _load(self, now_ms: int) -> BrokerLoad:
        totals, strength = self._totals, self._seat.strength
        totals.append((now_ms, self._matched, self._sent_bytes))
        while len(totals) > 1 and totals[1][0] <= now_ms - WINDOW_MS:
            totals.popleft()
        elapsed_s = (now_ms - totals[0][0]) / 1000
        count = len(self.node.broker.subscriptions)
        return BrokerLoad(
            subscriptions=count,
            input_rate_per_s=(self._matched - totals[0][1]) / elapsed_s if elapsed_s else 0.0,
            matching_delay_s=count * DELAY_S / strength,
            matching_delay_slope_s=DELAY_S / strength,
            output_bytes_per_s=(self._sent_bytes - totals[0][2]) / elapsed_s if elapsed_s else 0.0,
            bandwidth_bytes_per_s=BANDWIDTH * strength,
            publication_bytes=PUBLICATION_BYTES,
        )

    def _covering(self, broker: str) -> list[str]:
        """The filters that are told towards a broker."""
        machine = self.node.machine
        for neighbour, members in machine.members_behind.items():
            if any(each.name == broker for each in members.values()):
                table = machine.router.outgoing[neighbour].table
                return [str(each.filter) for each in table if isinstance(each, SubscribedRoute)]
        return []

    def _start_sampling(self, effect: StartSampling, now_ms: int) -> None:
        broker = self.node.broker
        movable = broker.migrations.movable()
        self._sampling = _Sampling(
            effect,
            now_ms + effect.timeout_ms,
            [each.name for each in movable],
            [Filter.parse(str(each.filter)) for each in movable],
            [[Filter.parse(text) for text in texts] for texts in effect.covering.values()],
            [],
            {peer: [] for peer in effect.covering},
        )

    # ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_moves(self, effect: StartMoves, now_ms: int) -> list[Effect]:
        moves = self._moves[effect.session] = _Moves({each.subscription for each in effect.moves})
        effects: list[Effect] = []
        for each in effect.moves:
            try:
                done = self.node.move("", each.subscription, each.destination, now_ms)
            except LavantError:  # it is gone, or the brokers do not know each other any more
                moves.waiting.discard(each.subscription)
                moves.failed += 1
            else:
                effects += self._perform(done, now_ms)
        return effects

    def _ended(self, outcome: MigrationOutcome) -> None:
        for moves in self._moves.values():
            if outcome.name in moves.waiting:
                moves.waiting.discard(outcome.name)
                moves.moved += outcome.is_complete
                moves.failed += not outcome.is_complete
