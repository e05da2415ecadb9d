"""The world of an experiment: brokers, publishers and subscribers in virtual time, controlled by the real balancers.

Every second, quotes are matched, queues advance, subscribers join and move. Control messages overtake publications, as
the thesis has it, and take `LATENCY_MS`; they may be lost, repeated or late. A subscriber that moves connects to its
new broker, and leaves the old one when the others of its session have connected too; until then it loads both. What
waits for it in the old broker's queues is still delivered from there. In the thesis it stays subscribed for that time
as well (Section 3.4.2): with a backlog of minutes an overloaded broker keeps the load of those it has moved, and goes
on moving.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from lavant.control.balancing.cluster import ClusterBalancer
from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.press import PressSample, pack
from lavant.control.balancing.values import (
    BalancingDecision,
    BalancingEffect,
    BalancingStimulus,
    ControlMessage,
    Decided,
    LoadMeasured,
    MessageArrived,
    MovesEnded,
    SampleTaken,
    SendControl,
    StartMoves,
    StartSampling,
    StopSampling,
    TimePassed,
    WatchCluster,
)
from lavant.simulation.balancing.brokers import BrokerSpec, Fleet
from lavant.simulation.balancing.workload import QuoteWorkload, match_quotes

LATENCY_MS = 20
MEASURE_S = 2
MOVES_PER_S = 100
"""Subscribers of one session that connect to their new broker within a second."""
MOVE_MESSAGES = 2
"""A subscription and an unsubscription. The subscriber learns where to go from the answer to a request of its own."""

Balancer = EdgeBalancer | ClusterBalancer


class ControlFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Fractions of control messages that are lost, arrive twice, or arrive up to `late_ms` late."""

    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    late_ms: int = 10_000


class _Sampling(msgspec.Struct):
    """A broker that records its next publications for PRESS."""

    broker: int
    request: StartSampling
    ends_ms: int
    started_ms: int
    rows: list[int]
    matches: list[tuple[int, int]] = []
    peers: list[list[bool]] = []
    taken: int = 0


class _Migration(msgspec.Struct):
    """The moves of one session: those that wait, those that are connected."""

    broker: int
    session: str
    waiting: list[tuple[int, int]]
    connected: list[int] = []


class BalancingWorld:
    """One run. `step` advances it by a second."""

    def __init__(
        self,
        specs: Sequence[BrokerSpec],
        workload: QuoteWorkload,
        *,
        edges: dict[str, EdgeBalancer],
        heads: dict[str, ClusterBalancer] | None = None,
        joins_at: str,
        seed: int,
        faults: ControlFaults | None = None,
    ) -> None:
        self.fleet = Fleet(tuple(specs))
        self.workload = workload
        self.second = 0
        self.moves = 0
        self.moved_ever: set[int] = set()
        self.control_messages = 0
        self.publication_messages = 0
        self.deliveries = 0
        self.decisions: list[BalancingDecision] = []
        self.rates_per_s = workload.rates_per_s.copy()
        self._progress = workload.phases.copy()
        self._index = {spec.name: number for number, spec in enumerate(specs)}
        self.edges = edges
        self.heads = {} if heads is None else heads
        self._joins_at = self._index[joins_at]
        self._watchers = _watchers(specs, self.heads)
        self.faults = faults
        """May be set to None: from then on every control message arrives once and in time."""
        self._random = np.random.default_rng([seed, 5])
        self._calendar: list[tuple[int, int, str, BalancingStimulus]] = []
        self._count = itertools.count()
        self._samplings: dict[str, _Sampling] = {}
        self._migrations: dict[str, _Migration] = {}
        count = len(workload.subscriptions)
        self.home = np.full(count, -1, np.int64)
        self.leaving = np.full(count, -1, np.int64)
        self._join_order = np.argsort(workload.subscriptions.joins_s, kind="stable")
        self._joined = 0
        self._matched = np.zeros((1, 2), np.int64)

    @property
    def now_ms(self) -> int:
        return self.second * 1000

    @property
    def counts(self) -> np.typing.NDArray[np.int64]:
        """Subscribers by broker, those that are leaving not counted twice."""
        return np.bincount(self.home[self.home >= 0], minlength=len(self.fleet.specs))

    @property
    def is_idle(self) -> bool:
        """No session moves anything."""
        return not self._migrations and not self._samplings

    def step(self) -> None:
        """One second."""
        self.second += 1
        self._join()
        self._publish()
        self._migrate()
        if self.second % MEASURE_S == 0:
            for name, load in zip(self._index, self.fleet.loads(), strict=True):
                self._handle(name, LoadMeasured(load=load), self.now_ms)
        self._run_until(self.now_ms)

    # Publications and subscribers.

    def _join(self) -> None:
        joins = self.workload.subscriptions.joins_s
        while self._joined < len(joins) and joins[self._join_order[self._joined]] <= self.second:
            self.home[self._join_order[self._joined]] = self._joins_at
            self.fleet.subscriptions[self._joins_at] += 1
            self._joined += 1

    def _publish(self) -> None:
        workload, quotes, subscriptions = self.workload, self.workload.quotes, self.workload.subscriptions
        before = np.floor(self._progress).astype(np.int64)
        publishers, self._progress = workload.publications(self.rates_per_s, self._progress)
        quote = before[publishers] % quotes.high.shape[1]
        deliveries = np.zeros((len(publishers), len(self.fleet.specs)), np.int64)
        if len(self._matched) < len(publishers) * len(subscriptions):
            self._matched = np.zeros((len(publishers) * len(subscriptions), 2), np.int64)
        found = match_quotes(
            publishers,
            quotes.high[publishers, quote],
            quotes.low[publishers, quote],
            quotes.volume[publishers, quote],
            subscriptions.template,
            subscriptions.bound,
            subscriptions.starts,
            self.home,
            self.leaving,
            deliveries,
            self._matched,
        )
        received = deliveries > 0
        self.publication_messages += len(publishers) + int(received.sum())
        self.deliveries += int(deliveries.sum())
        self.fleet.advance(
            received.sum(axis=0).astype(np.float64), deliveries.sum(axis=0).astype(np.float64), self.second
        )
        for sampling in list(self._samplings.values()):
            self._sample(sampling, received, self._matched[:found])

    # PRESS.

    def _sample(
        self, sampling: _Sampling, received: np.typing.NDArray[np.bool_], pairs: np.typing.NDArray[np.int64]
    ) -> None:
        room = sampling.request.publications - sampling.taken
        mine = np.flatnonzero(received[:, sampling.broker])[:room]
        number = np.full(len(received), -1)
        number[mine] = sampling.taken + np.arange(len(mine))
        chosen = (number[pairs[:, 0]] >= 0) & (self.home[pairs[:, 1]] == sampling.broker)
        sampling.matches.extend(zip(pairs[chosen, 1].tolist(), number[pairs[chosen, 0]].tolist(), strict=True))
        peers = [self._index[peer] for peer in sampling.request.covering]
        sampling.peers.extend(received[mine][:, peers].tolist())
        sampling.taken += len(mine)
        if sampling.taken >= sampling.request.publications or self.now_ms >= sampling.ends_ms:
            self._finish_sample(sampling)

    def _finish_sample(self, sampling: _Sampling) -> None:
        del self._samplings[sampling.request.session]
        rows = [row for row in sampling.rows if self.home[row] == sampling.broker]
        at = {row: number for number, row in enumerate(rows)}
        bits = np.zeros((len(rows), sampling.taken), np.bool_)
        for row, publication in sampling.matches:
            if row in at:
                bits[at[row], publication] = True
        of_peers = np.array(sampling.peers, np.bool_).reshape(sampling.taken, len(sampling.request.covering))
        taken_s = max(1, (self.now_ms - sampling.started_ms) // 1000)
        load = self.fleet.input_rate_per_s[sampling.broker]
        sample = PressSample(
            subscriptions=[str(row) for row in rows],
            vectors=pack(bits),
            peers=dict(zip(sampling.request.covering, pack(of_peers.T), strict=True)),
            publications=sampling.taken,
            input_rate_per_s=float(load) if sampling.taken else sampling.taken / taken_s,
        )
        answer = SampleTaken(session=sampling.request.session, sample=sample)
        self._schedule(self.now_ms, self.fleet.specs[sampling.broker].name, answer)

    # Moves.

    def _migrate(self) -> None:
        for migration in list(self._migrations.values()):
            for row, destination in migration.waiting[:MOVES_PER_S]:
                if self.home[row] != migration.broker:
                    continue
                self.leaving[row], self.home[row] = migration.broker, destination
                self.fleet.subscriptions[destination] += 1
                migration.connected.append(row)
            del migration.waiting[:MOVES_PER_S]
            if not migration.waiting:
                self._finish_migration(migration)

    def _finish_migration(self, migration: _Migration) -> None:
        del self._migrations[migration.session]
        self.leaving[migration.connected] = -1
        self.fleet.subscriptions[migration.broker] -= len(migration.connected)
        self.moves += len(migration.connected)
        self.moved_ever.update(migration.connected)
        self.control_messages += MOVE_MESSAGES * len(migration.connected)
        ended = MovesEnded(session=migration.session, moved=len(migration.connected))
        self._schedule(self.now_ms, self.fleet.specs[migration.broker].name, ended)

    # The balancers.

    def _machine(self, name: str) -> Balancer:
        return self.edges[name] if name in self.edges else self.heads[name]

    def _handle(self, name: str, stimulus: BalancingStimulus, now_ms: int) -> None:
        for effect in self._machine(name).handle(stimulus, now_ms):
            self._perform(name, effect, now_ms)

    def _run_until(self, end_ms: int) -> None:
        for name in (*self.edges, *self.heads):
            wakeup_ms = self._machine(name).wakeup_ms()
            if wakeup_ms is not None and wakeup_ms <= end_ms:
                self._handle(name, TimePassed(), end_ms)
        while self._calendar and self._calendar[0][0] <= end_ms:
            time_ms, _, name, stimulus = heapq.heappop(self._calendar)
            self._handle(name, stimulus, max(time_ms, end_ms - 999))

    def _schedule(self, time_ms: int, name: str, stimulus: BalancingStimulus) -> None:
        heapq.heappush(self._calendar, (time_ms, next(self._count), name, stimulus))

    def _perform(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        performers: dict[type, Callable[[str, BalancingEffect, int], None]] = {
            SendControl: self._send,
            StartSampling: self._start_sampling,
            StopSampling: self._stop_sampling,
            StartMoves: self._start_moves,
            WatchCluster: self._watch,
            Decided: self._note,
        }
        performers[type(effect)](name, effect, now_ms)

    def _send(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        assert isinstance(effect, SendControl)
        to = [effect.to] if effect.to is not None else sorted(self._watchers[effect.cluster or ""] - {name})
        for receiver in to:
            if receiver in self.edges or receiver in self.heads:
                self._transmit(receiver, effect.message, now_ms)
        # A message crosses the head on its way.
        self.control_messages += len(to) + 1

    def _transmit(self, receiver: str, message: ControlMessage, now_ms: int) -> None:
        faults, times = self.faults, 1
        delay_ms = LATENCY_MS
        if faults is not None:
            lost, twice, late = self._random.random(3)
            times = 0 if lost < faults.lost else 2 if twice < faults.twice else 1
            if late < faults.late:
                delay_ms += int(self._random.integers(0, faults.late_ms))
        for _ in range(times):
            self._schedule(now_ms + delay_ms, receiver, MessageArrived(message=message))

    def _start_sampling(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        assert isinstance(effect, StartSampling)
        broker = self._index[name]
        sampling = _Sampling(
            broker=broker,
            request=effect,
            ends_ms=now_ms + effect.timeout_ms,
            started_ms=now_ms,
            rows=np.flatnonzero(self.home == broker).tolist(),
            matches=[],
            peers=[],
        )
        self._samplings[effect.session] = sampling
        if effect.publications == 0:
            self._finish_sample(sampling)

    def _stop_sampling(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        assert isinstance(effect, StopSampling)
        self._samplings.pop(effect.session, None)

    def _start_moves(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        assert isinstance(effect, StartMoves)
        waiting = [(int(move.subscription), self._index[move.destination]) for move in effect.moves]
        migration = _Migration(broker=self._index[name], session=effect.session, waiting=waiting, connected=[])
        self._migrations[effect.session] = migration

    def _watch(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        assert isinstance(effect, WatchCluster)
        watchers = self._watchers[effect.cluster]
        (watchers.add if effect.is_on else watchers.discard)(name)

    def _note(self, name: str, effect: BalancingEffect, now_ms: int) -> None:
        assert isinstance(effect, Decided)
        self.decisions.append(effect.decision)


def _watchers(specs: Sequence[BrokerSpec], heads: dict[str, ClusterBalancer]) -> dict[str, set[str]]:
    """Who gets the reports of each cluster: its edges and its head."""
    watchers: dict[str, set[str]] = {}
    for spec in specs:
        watchers.setdefault(spec.cluster, set()).add(spec.name)
    for head in heads:
        watchers.setdefault(head, set()).add(head)
    return watchers
