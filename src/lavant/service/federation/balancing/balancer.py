"""Runs the balancing machine of this broker: performs its effects, and tells it what is measured and received.

    LoadMeter, PressSampler ──► EdgeBalancer ──SendControl──► links ──► other brokers
    links ──BrokerMessage────►      │
                                    └──StartMoves──► SubscriptionMoves

Edges of a cluster balance with each other. At a head, a ClusterBalancer compares clusters, and lets the edges of two of
them balance as one for a while. Every report goes to all brokers; each takes those of its cluster, and of the one that
its head tells it to watch.

Messages cross links as control frames, which overtake publications. No client can send one: only a connection with a
key of the scope `broker` is a link, and a broker believes a message only if it came over the link behind which the
sender is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from lavant.broker.federation.frames import BalancingContent, BrokerMessage
from lavant.broker.federation.trace import members_of
from lavant.broker.protocol.federation import BrokerMember, MoveSubscription, SubscribedRoute, SubscriptionMigrated
from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.control.balancing import ClusterBalancer, EdgeBalancer, LoadReport, balancing_policy
from lavant.control.balancing.exchange import PeerReports
from lavant.control.balancing.values import (
    COVERING_MAX,
    BalancingEffect,
    BalancingStimulus,
    ControlMessage,
    Decided,
    LoadMeasured,
    MessageArrived,
    MovesEnded,
    SampleTaken,
    SendControl,
    SessionDone,
    SessionRequest,
    StartMoves,
    StartSampling,
    StopSampling,
    SubscriptionMove,
    WatchCluster,
    decode_control,
    encode_control,
)
from lavant.core.errors import LavantError
from lavant.service.federation.balancing.load_meter import LoadMeter
from lavant.service.federation.balancing.places import BalancingPlace, place_of
from lavant.service.federation.balancing.press_sampler import PressSampler, covering_text
from lavant.service.federation.balancing.settings import BalancingSettings

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks

MEASURE_S = 1.0
GATHER_MS = 3_000
"""Reports of other brokers are gathered for so long before the first session, which could be with one of them only."""
MOVES_AT_ONCE = 16
"""To each broker: those to one that does not answer hold up no others."""
MOVES_AT_ONCE_BEHIND = 500
"""From a broker that gets more than it can match: all of them wait for the same publications."""
PAUSES_KEPT = 1000
COVERING_BYTES_MAX = 256 << 10
"""Of the filters in a reply; what is cut off counts as not covered."""

_logger = logging.getLogger(__name__)


class BalancingCounts(msgspec.Struct):
    """Since the start of the broker."""

    sent: int = 0
    received: int = 0
    rejected: int = 0
    """Messages that could not be read, or whose sender is somewhere else."""
    sessions: int = 0
    moved: int = 0
    failed: int = 0


class FederationBalancer:
    """Balances one broker with the others of its federation."""

    def __init__(self, links: FederationLinks, settings: BalancingSettings) -> None:
        self.meter = LoadMeter(links.service, settings.capacity, self._failed)
        self._policy = balancing_policy(settings.policy)
        self._links = links
        self.place = BalancingPlace()
        """By the roles that brokers have; each measurement looks whether they have changed."""
        self.is_on = settings.is_on
        """Whether this broker takes part: it reports its load at once, and has sessions `GATHER_MS` later."""
        self._start_machines()
        self.counts = BalancingCounts()
        self.pauses_ms: deque[int] = deque(maxlen=PAUSES_KEPT)
        """How long the subscriptions that moved last got nothing."""
        self.fault: str | None = None
        """Why balancing has ended by itself."""
        self._heard = PeerReports(self._policy.config.report_expiry_ms)
        """Reports of all brokers: when those of another cluster begin to count, the next ones may be a minute away."""
        self._report: LoadReport | None = None
        self._told: dict[tuple[str, int], int] = {}
        """By identity and epoch of a broker: the number of the last report that was sent there."""
        self._gather_until_ms = links.clock.now_ms() + GATHER_MS
        self._sample_until_ms = 0
        self._sampled: dict[str, SubscriptionState] = {}
        """The subscriptions of the last sample, by queue: each has one of its own."""
        self._warned: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._links.service.ingest.probe = self.meter
        self._do(self._run())

    async def stop(self) -> None:
        """Moves that are under way go on by themselves at the next start."""
        self._links.service.ingest.probe = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def switch(self, *, is_on: bool) -> None:
        """Take part in balancing, or not: then moves that have begun end, and others do not begin."""
        if self.fault is not None:  # its state may be half changed
            self._start_machines()
            self.fault = None
        self.is_on = is_on
        self.machine.is_on = self.machine.is_on and is_on
        if self.cluster is not None:
            self.cluster.is_on = is_on
        self._gather_until_ms = self._links.clock.now_ms() + GATHER_MS
        _logger.info("balancing is %s", "on" if is_on else "off")

    def received(self, frame: BrokerMessage) -> None:
        """A message of another broker; the links have checked from where it came."""
        assert isinstance(frame.content, BalancingContent)
        sender = next((each for each in members_of(self._links.machine) if each.identity == frame.source), None)
        if sender is None:  # it has just left
            return
        try:
            message = decode_control(frame.content.message, sender.name)
        except LavantError as error:
            self._reject(sender.name, error)
            return
        self.counts.received += 1
        with self._guarded():
            if isinstance(message, SessionRequest):  # the reply has the load and the covering set of this moment
                self._handle(LoadMeasured(load=self.meter.measure(), covering=tuple(self._covering(sender))))
            elif isinstance(message, SessionDone) and message.moved:
                self.meter.restart()
            if isinstance(message, LoadReport) and not message.is_of_cluster:
                self._heard.receive(message, self._links.clock.now_ms())
            if not isinstance(message, LoadReport) or self._is_watched(message):
                self._handle(MessageArrived(message=message))

    async def measure(self) -> None:
        """One measurement, and the end of a sample that is due."""
        if self._links.clock.now_ms() >= self._gather_until_ms:
            self.machine.is_on = self.is_on and not self.place.is_head
        with self._guarded():
            self._follow_roles()
            self._handle(LoadMeasured(load=self.meter.measure()))
            self._tell_report()
            sampler = self.meter.sampler
            if sampler is not None and (sampler.is_complete or self._links.clock.now_ms() >= self._sample_until_ms):
                self.meter.sampler = None
                sample = await asyncio.to_thread(sampler.sample, self.machine.load.input_rate_per_s)
                opened = self.machine.opened(sampler.session, sample, self._links.clock.now_ms())
                if opened is not None:  # a plan for thousands of subscriptions takes seconds, so the loop goes on
                    plan = await asyncio.to_thread(self._policy.plan, opened)
                    self._handle(SampleTaken(session=sampler.session, sample=sample, plan=plan))

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A mistake ends balancing, not the broker."""
        try:
            yield
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.is_on = self.machine.is_on = False
        self.meter.sampler = None
        self.fault = f"balancing is off after an internal error: {type(error).__name__}: {error}"
        _logger.error("%s; the broker goes on; please report it", self.fault, exc_info=error)

    def _handle(self, stimulus: BalancingStimulus) -> None:
        """Tell the machine, and perform its effects. That of a head's own load hears no messages."""
        now_ms = self._links.clock.now_ms()
        if self.fault is not None:
            return
        if self.cluster is None or not isinstance(stimulus, MessageArrived):
            for effect in self.machine.handle(stimulus, now_ms):
                self._perform(effect)
        if self.cluster is not None:
            for effect in self.cluster.handle(stimulus, now_ms):
                self._perform(effect)

    def _start_machines(self) -> None:
        """Begin anew: sessions of before end at their deadlines on the other side."""
        place, name = self.place, self._links.settings.name
        self.machine = EdgeBalancer(name, cluster=place.cluster, head=place.head, policy=self._policy)
        self.machine.is_on = False
        self.cluster: ClusterBalancer | None = None
        """At a head: balances its cluster with others."""
        if place.is_head:
            config = self._policy.config
            self.cluster = ClusterBalancer(name, edges=place.edges, neighbours=place.heads, config=config)
            self.cluster.is_on = self.is_on
        self._watched: dict[str, int] = {}
        """Other clusters whose reports count here, and until when if nobody ends it."""

    def _follow_roles(self) -> None:
        place = place_of(self._links.machine)
        if place != self.place:
            self.place = place
            self._start_machines()
            self._gather_until_ms = self._links.clock.now_ms() + GATHER_MS
            self._hear_again(place.cluster)
            if self.is_on:
                _logger.info(
                    "balances %s", f"cluster {place.cluster}" if place.is_head else f"in cluster {place.cluster}"
                )

    def _is_watched(self, report: LoadReport) -> bool:
        if report.is_of_cluster:
            return self.place.is_head
        is_watched = self._watched.get(report.cluster, 0) > self._links.clock.now_ms()
        return report.cluster == self.place.cluster or is_watched

    def _watch(self, effect: WatchCluster) -> None:
        now_ms = self._links.clock.now_ms()
        self._watched[effect.cluster] = now_ms + self._policy.config.cluster_session_ms_max if effect.is_on else 0
        if effect.is_on:
            self._hear_again(effect.cluster)

    def _hear_again(self, cluster: str) -> None:
        """Tell the machine what brokers of a cluster have reported last."""
        self._heard.expire(self._links.clock.now_ms())
        for report in self._heard.latest.values():
            if report.cluster == cluster:
                self._handle(MessageArrived(message=report))

    async def _run(self) -> None:
        while True:
            await self.measure()
            await asyncio.sleep(MEASURE_S)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._links.service.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _perform(self, effect: BalancingEffect) -> None:
        match effect:
            case SendControl() if isinstance(effect.message, LoadReport) and effect.to is None:
                self._report = effect.message
                self._tell_report()
            case SendControl():
                for member in members_of(self._links.machine):
                    if member.name == effect.to:
                        self._send(effect.message, member)
            case StartSampling():
                self._start_sampling(effect)
            case StopSampling():
                if self.meter.sampler is not None and self.meter.sampler.session == effect.session:
                    self.meter.sampler = None
            case StartMoves():
                self.counts.sessions += 1
                self._do(self._move_all(effect.session, [self._request(each) for each in effect.moves]))
            case WatchCluster():
                self._watch(effect)
            case Decided():
                settled = "settled, " if effect.decision.measured else ""
                _logger.info("%s%s; session %s", settled, effect.decision, effect.decision.session)

    def _tell_report(self) -> None:
        """Send the last report to those that do not have it: all others, or brokers that were not there before."""
        report = self._report
        if report is None or not self.is_on or self.place.is_head:
            return
        members = {(each.identity, each.epoch): each for each in members_of(self._links.machine)}
        self._told = {
            key: report.number
            for key, member in members.items()
            if self._told.get(key) == report.number or self._send(report, member)
        }

    def _send(self, message: ControlMessage, member: BrokerMember) -> bool:
        """Returns whether it has left; it may get lost on its way."""
        federation = self._links.machine
        session = federation.migrations.session_to(member.identity)
        connection = None if session is None else self._links.connection_to(session.neighbour)
        if connection is None:
            return False
        self.counts.sent += 1
        content = BalancingContent(encode_control(message))
        connection.send(BrokerMessage(federation.own.identity, member.identity, content))
        return True

    def _reject(self, name: str, why: LavantError) -> None:
        self.counts.rejected += 1
        if name not in self._warned:
            self._warned.add(name)
            _logger.warning("ignored a message of broker %r: %s", name, why)

    def _covering(self, broker: BrokerMember) -> Iterable[str]:
        """The filters that are told towards a broker: what gets here anyway, seen from there."""
        federation = self._links.machine
        neighbour = federation.migrations.neighbour_to(broker.identity)
        outgoing = None if neighbour is None else federation.router.outgoing.get(neighbour)
        count = size = 0
        for entry in () if outgoing is None else outgoing.table:
            if isinstance(entry, SubscribedRoute) and isinstance(entry.filter, str):
                count, size = count + 1, size + len(entry.filter)
                if count > COVERING_MAX or size > COVERING_BYTES_MAX:
                    return
                yield covering_text(entry.namespace, entry.filter)

    def _start_sampling(self, effect: StartSampling) -> None:
        server = self._links.machine.server
        self._sampled = {each.queue: each for each in server.broker.migrations.movable()}
        self.meter.sampler = PressSampler(
            effect.session,
            list(self._sampled),
            list(map(server.queues.serial, self._sampled)),
            effect.covering,
            effect.publications,
        )
        self._sample_until_ms = self._links.clock.now_ms() + effect.timeout_ms

    def _request(self, move: SubscriptionMove) -> MoveSubscription:
        subscription = self._sampled[move.subscription]
        return MoveSubscription(subscription.name, move.destination, subscription.namespace)

    async def _move_all(self, session: str, requests: list[MoveSubscription]) -> None:
        """Ask for moves as long as the session lasts: its plan is out of date when it has ended at its deadline."""
        is_behind = self.machine.load.input_utilization >= self._policy.config.overload_high
        at_once = MOVES_AT_ONCE_BEHIND if is_behind else MOVES_AT_ONCE
        gates = {each.broker: asyncio.Semaphore(at_once) for each in requests}

        async def move(request: MoveSubscription) -> bool:
            async with gates[request.broker]:
                if not self.is_on or self.machine.offloading != session:
                    return False
                answer = await self._links.service.execute(request)
                if not isinstance(answer, SubscriptionMigrated):
                    return False
                self.pauses_ms.append(answer.pause_ms)
                return True

        moved = sum(await asyncio.gather(*map(move, requests)))
        failed = len(requests) - moved
        self.counts.moved += moved
        self.counts.failed += failed
        self.meter.restart()
        with self._guarded():
            self._handle(MovesEnded(session=session, moved=moved, failed=failed))
