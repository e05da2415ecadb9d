"""The links of a broker: performs the effects of the pure federation machine.

    connections ──frames──► FederationMachine ──SendFrame, CloseLink──► connections
                                 │    ▲
              Record, Reply ◄────┘    └── committed, relayed ◄── BrokerRuntime

Effects are performed in the order in which the machine returned them, also if performing one of them calls the machine
again: records must reach the journal in the order of their positions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lavant.broker.federation.effects import (
    AwaitMatchers,
    CloseLink,
    FrameReceived,
    LinkEffect,
    LinkNotice,
    RelayPublications,
    SendFrame,
)
from lavant.broker.federation.frames import BrokerMessage, LinkAcknowledged, LinkFrame, LinkPublications, LinkRefused
from lavant.broker.federation.machine import FederationMachine
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.federation import MoveSubscription, SwitchBalancing
from lavant.broker.protocol.queues import Done
from lavant.broker.protocol.subscriptions import Published
from lavant.service.auth.keys import KeyRing
from lavant.service.federation.balancing.balancer import FederationBalancer
from lavant.service.federation.balancing.views import balancing_families
from lavant.service.federation.connection import LinkConnection
from lavant.service.federation.dialer import LinkDialer
from lavant.service.federation.moves import SubscriptionMoves
from lavant.service.federation.role_redirects import RoleRedirects
from lavant.service.federation.settings import FederationSettings
from lavant.service.federation.tracing import Traces
from lavant.service.federation.views import federation_families
from lavant.service.net.admission import Ticket
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.observability.request_spans import relaying
from lavant.service.runtime.broker_runtime import TIMER_S_MAX, BrokerRuntime
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.readiness import Readiness

QUIET_S = 60.0
"""A refusal of the same address for the same reason is logged once in this time."""
REFUSALS_MAX = 1000

_logger = logging.getLogger(__name__)


class FederationLinks:
    """All links of one broker."""

    def __init__(
        self,
        service: BrokerRuntime,
        machine: FederationMachine,
        settings: FederationSettings,
        clock: ServerClock,
        *,
        keys: KeyRing,
        readiness: Readiness,
    ) -> None:
        self.machine = machine
        self.settings = settings
        self.keys = keys
        self.readiness = readiness
        self.limits = service.limits
        self.service = service
        self.clock = clock
        admission = service.ingest.admission
        admission.broker = settings.name
        admission.requires_advertisements = settings.requires_advertisements
        tls = settings.tls()
        self.dialers = [LinkDialer(self, address, tls) for address in settings.joins]
        self.opening = asyncio.Lock()
        """Held while a link is dialled and opened."""
        self.traces = Traces(self)
        self.moves = SubscriptionMoves(self)
        self.redirects = RoleRedirects(self)
        self.balancer = FederationBalancer(self, settings.balancing)
        self._connections: set[LinkConnection] = set()
        self._effects: deque[LinkEffect] = deque()
        self._is_performing = False
        self._is_stopping = self._is_stopped = False
        self._relayed: list[tuple[LinkConnection, int, Published]] = []
        self._refusals: dict[tuple[str, str], float] = {}
        """When a refusal was last logged, by address and reason."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # ── called by the process ─────────────────────────────────────────────────────────────────────────────────────────

    def start(self, address: str) -> None:
        """Call it when the broker serves, at this address unless the settings say another one."""
        given = self.settings.address
        self.do(lambda now_ms: self.machine.open(now_ms, address if given is None else str(given)))
        self.service.links = self
        for dialer in self.dialers:
            dialer.start()
        self.balancer.start()

    async def stop(self) -> None:
        self.service.links = None
        self._is_stopping = True
        await self.balancer.stop()
        for dialer in self.dialers:
            await dialer.stop()
        for connection in list(self._connections):
            connection.close()
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def families(self) -> Iterator[MetricFamily]:
        yield from federation_families(self)
        yield from balancing_families(self.balancer)

    def knows_behind(self, connection: LinkConnection) -> bool:
        """Whether the link is open and the neighbour has told which brokers are behind it."""
        return connection.is_welcome and bool(self.machine.members_behind.get(connection.neighbour))

    def connection_to(self, neighbour: str) -> LinkConnection | None:
        """The open link to a neighbour, if there is one."""
        return next((each for each in self._connections if each.neighbour == neighbour and each.is_welcome), None)

    def request(self, client: Any, number: int, request: MoveSubscription | SwitchBalancing) -> None:
        """A request that the links answer, not the broker machine."""
        if isinstance(request, MoveSubscription):
            self.moves.request(client, number, request)
        else:
            self.balancer.switch(is_on=request.is_on)
            self.service.perform([Reply(client, number, Done())])

    def accept(self, ticket: Ticket) -> LinkConnection:
        """A protocol for a connection that begins with the preface of links."""
        return LinkConnection(self, ticket)

    # ── called by the broker's runtime ────────────────────────────────────────────────────────────────────────────────

    def committed(self) -> None:
        """Records are durable: what depends on them may leave."""
        self._take_relayed()
        self.do(self.machine.committed)

    # ── called by connections and dialers ─────────────────────────────────────────────────────────────────────────────

    def opened(self, connection: LinkConnection) -> None:
        self._connections.add(connection)
        self.service.opened(connection)

    def dialled(self, connection: LinkConnection) -> None:
        self.do(lambda now_ms: self.machine.dialled(connection, now_ms))

    def received(self, connection: LinkConnection, frame: LinkFrame) -> None:
        if isinstance(frame, LinkAcknowledged):
            self.traces.marked.confirmed(connection.neighbour, frame.number)
        elif isinstance(frame, LinkRefused):
            self._tell_refusal(connection, f"{connection.peer} refused the link with this broker: {frame.reason}")
        self.do(lambda now_ms: self.machine.frame(connection, frame, now_ms))

    def admitted(self, connection: LinkConnection) -> None:
        """The key of a broker that dialled this one is right."""
        self.do(lambda now_ms: self.machine.accepted(connection, now_ms))

    def closed(self, connection: LinkConnection) -> None:
        self._connections.discard(connection)
        self.service.closed(connection)
        is_lost = connection.is_welcome and not (connection.is_passing or self._is_stopping)
        if is_lost and connection.address is None:  # the dialler of a link says itself why it is down
            _logger.warning("the link to %s is down: %s", connection.peer, connection.reason)
        self.do(lambda now_ms: self.machine.closed(connection, now_ms))

    def paused(self, connection: LinkConnection) -> None:
        self.machine.pause(connection)

    def resumed(self, connection: LinkConnection) -> None:
        self.do(lambda now_ms: self.machine.resume(connection, now_ms))

    def relayed(self, connection: LinkConnection, number: int, answer: Published) -> None:
        """Handled after this: the runtime is in the middle of performing effects. A commit goes on with `committed`."""
        if not self._relayed:
            self.service.loop.call_soon(self._take_relayed)
        self._relayed.append((connection, number, answer))

    def welcomed(self, connection: LinkConnection) -> None:
        """A link is open on both sides."""
        _logger.info("the link to %s is up", connection.peer)

    def refused(self, connection: LinkConnection, refusal: LinkRefused) -> None:
        """This broker refused a link."""
        self._tell_refusal(connection, f"refused the link with {connection.peer}: {refusal.reason}")

    def _tell_refusal(self, connection: LinkConnection, text: str) -> None:
        """Log it, unless it passes by itself; the dialler of a link says why it is down."""
        if connection.is_passing or connection.address is not None:
            return
        now_s = time.monotonic()
        key = (connection.host, text)
        if now_s - self._refusals.get(key, float("-inf")) < QUIET_S:
            return
        if len(self._refusals) >= REFUSALS_MAX:
            self._refusals.clear()
        self._refusals[key] = now_s
        _logger.warning("%s", text)

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_relayed(self) -> None:
        relayed, self._relayed = self._relayed, []
        for each in relayed:
            self.do(partial(self._answer_relay, *each))

    def _answer_relay(
        self, connection: LinkConnection, number: int, answer: Published, now_ms: int
    ) -> list[LinkEffect]:
        return self.machine.relayed(connection, number, answer.entries, now_ms)

    def _matched(self, token: int) -> None:
        self.do(lambda now_ms: self.machine.matched(token, now_ms))

    def do(self, stimulus: Callable[[int], list[LinkEffect]]) -> None:
        if self.service.has_failed or self._is_stopped:
            return
        try:
            self._effects += stimulus(self.clock.now_ms())
            if not self._is_performing:
                self._perform()
        except Exception as error:  # a bug in the machine: its state may be half changed and must not be used
            self.service.fail(error)

    def _perform(self) -> None:
        self._is_performing = True
        try:
            while self._effects:
                self._perform_one(self._effects.popleft())
        finally:
            self._is_performing = False
        self.service.ingest.go_on()  # routes may have changed
        self._set_timer()

    def _perform_one(self, effect: LinkEffect) -> None:
        if isinstance(effect, SendFrame):
            if isinstance(effect.frame, LinkPublications):
                self.traces.marked.sent(effect.connection.neighbour, effect.frame)
            effect.connection.send(effect.frame)
        elif isinstance(effect, RelayPublications):
            self.traces.marked.received(effect.neighbour, effect.batch)
            self.service.ingest.relay(relaying(effect) if self.service.is_traced else effect)
        elif isinstance(effect, CloseLink):
            effect.connection.close(effect.reason)
        elif isinstance(effect, LinkNotice):
            _logger.log(logging.WARNING if effect.is_warning else logging.INFO, "%s", effect.text)
        elif isinstance(effect, AwaitMatchers):
            self.service.ingest.when_matchers_know(partial(self._matched, effect.token))
        elif isinstance(effect, FrameReceived):
            if isinstance(effect.frame, BrokerMessage):
                self.balancer.received(effect.frame)
            else:
                self.traces.received(effect.connection, effect.frame)
        else:
            self.service.perform([effect])

    def _set_timer(self) -> None:
        """One timer for the machine's next event; firing too early does no harm."""
        wakeup_ms = self.machine.wakeup_ms()
        if wakeup_ms is None or (self._timer is not None and self._timer_ms <= wakeup_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wakeup_ms
        delay_s = min(self.clock.seconds_until(wakeup_ms), TIMER_S_MAX)
        self._timer = self.service.loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.do(self.machine.tick)
