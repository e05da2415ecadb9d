"""A server of queues in an event loop: performs what the pure server says.

    connections ──request──► BrokerServer ──Record──► store ──committed──► BrokerServer ──Reply──► connections

In each turn of the loop, requests of all connections are taken in first, with the same time for each namespace that has
some. When the turn is over, the answers that may leave do so, one write for each connection, and what somebody waits
for is committed, all together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from lavant.broker.machine.effects import Effect, Observer, Record, Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import DeleteQueue, Receive, Refused
from lavant.service.auth.audit.log import AuditLog
from lavant.service.auth.keys import Principal
from lavant.service.engines.interface import Engine
from lavant.service.net.admission import SendBuffers
from lavant.service.net.connections import ClientGone, RequestConnection
from lavant.service.net.connections import RequestConnection as HttpConnection
from lavant.service.observability.telemetry.events import TelemetryEvents
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.ingest import REQUESTS, Ingest
from lavant.service.runtime.limits import LIMITS, ServiceLimits
from lavant.service.runtime.turns import StagedShares, Turns
from lavant.service.storage.stores import RecordStore


class RuntimeCall:
    """A client of this process that asks once. What it leases is its own until it is abandoned or cancelled."""

    def __init__(self, service: BrokerRuntime) -> None:
        self.answer: asyncio.Future[Answer] = service.loop.create_future()
        self._service = service
        self._lease: Reply | None = None
        self._is_abandoned = False

    def reply(self, reply: Reply) -> None:
        if self._is_abandoned:
            self._service.undelivered(reply)
            return
        if reply.queue:
            self._lease = reply
        if not self.answer.done():
            self.answer.set_result(reply.answer)

    def abandon(self) -> None:
        """Nobody waits for the answer any more: a receive that waits is forgotten, what was leased goes back."""
        self._is_abandoned = True
        if self._lease is not None:
            self._service.undelivered(self._lease)
        elif not self.answer.done() or self.answer.cancelled():
            self._service.forget(self)

    def over(self) -> None:
        """Whoever asked has the answer."""


class ConsumerCall(RuntimeCall):
    """A receive for a principal, perhaps over a connection. It is abandoned if the one is revoked or the other lost."""

    def __init__(self, service: BrokerRuntime, principal: Principal, connection: RequestConnection | None) -> None:
        super().__init__(service)
        self._revocation = principal.revocation
        self._connection = connection
        self._revocation.watch(self._revoke)
        if connection is not None:
            connection.watch(self._lost)

    def reply(self, reply: Reply) -> None:
        if reply.queue and self._connection is not None and self._connection.is_lost:
            self._connection.abort()  # nobody else may have noticed
            self._lost()
        super().reply(reply)

    def over(self) -> None:
        self._revocation.unwatch(self._revoke)
        if self._connection is not None and self._lease is None:
            self._connection.unwatch(self._lost)  # it is of interest only as long as there is something to lose

    def _revoke(self) -> None:
        self.abandon()
        if not self.answer.done():
            self.answer.set_result(Refused("AccessDenied", "the key was changed or removed"))

    def _lost(self) -> None:
        self.abandon()
        if not self.answer.done():
            self.answer.set_exception(ClientGone())
            self.answer.exception()  # whoever waits is told, and if nobody does that is no mistake


_logger = logging.getLogger(__name__)
TIMER_S_MAX = 10.0
"""A timer of the loop stands still while the machine is suspended, and the server's time does not."""


class RuntimeClient(Hashable, Protocol):
    """Whoever asks."""

    def reply(self, reply: Reply) -> None: ...


class ServerConnection(RuntimeClient, Protocol):
    """A client whose answers leave at the end of a turn, and whose requests can be left unread."""

    def flush(self) -> None: ...

    def pause_for_disk(self) -> None: ...

    def resume_for_disk(self) -> None: ...

    def keys_changed(self) -> None: ...

    def close(self) -> None: ...

    @property
    def ended(self) -> asyncio.Event: ...


class BrokerRuntime:
    """One server of queues. `on_failed` is told why it cannot go on; nothing is answered any more from then on."""

    def __init__(
        self,
        server: BrokerMachine,
        engine: Engine,
        store: RecordStore,
        clock: ServerClock,
        *,
        limits: ServiceLimits = LIMITS,
        on_failed: Callable[[Exception], None],
        turns: Turns | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.turns = Turns(self.loop) if turns is None else turns
        self.connections: set[ServerConnection] = set()
        self.send_buffers = SendBuffers(limits.unread_bytes_total_max)
        self.requests = 0
        self.audit = audit
        """Told of every request that passes the door, if there is one."""
        self._server = server
        self._store = store
        self._clock = clock
        self._on_failed = on_failed
        self._has_failed = False
        self._answered: list[ServerConnection] = []
        self._returned: list[Reply] = []
        """Of this turn, and not handed over."""
        self._is_turn_open = False
        self._is_disk_behind = False
        self._shares = StagedShares(limits.staged_bytes_fair)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.access = Ingest(server, engine, clock, limits=limits, perform=self._perform_later, on_failed=self._fail)
        self.access.on_worked = self._worked
        self._has_begun = False
        store.start(on_committed=self._committed, on_failed=self._fail)

    # ── called by connections ─────────────────────────────────────────────────────────────────────────────────────────

    def opened(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        if self._is_disk_behind:
            connection.pause_for_disk()

    def closed(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)
        self._server.gone(connection)

    def forget(self, client: RuntimeClient) -> None:
        """It waits for nothing any more."""
        self._server.gone(client)

    def undelivered(self, reply: Reply) -> None:
        """It could not be handed over: what it leased goes back when the turn is over, as if it had not been leased."""
        if reply.queue:
            self._returned.append(reply)
            self._open_turn()

    def has_answers(self, connection: ServerConnection) -> None:
        """It wants to be flushed when the turn is over."""
        self._answered.append(connection)

    def request(self, client: RuntimeClient, number: int, request: Request, raw: bytes | None) -> None:
        self.requests += 1
        if type(request) in REQUESTS and not self._has_failed:
            self.access.request(client, number, request)  # type: ignore[arg-type]
            return
        try:
            self._perform(self._server.request(client, number, request, raw, self._clock.now_ms()))
        except Exception as error:  # a mistake in the queues: what they hold may be half changed, and must not be used
            self._fail(error)
        if type(request) is DeleteQueue:
            self.access.go_on()  # subscriptions may have ended with it

    def had_turn(self, namespace: str) -> None:
        """A connection of this namespace has taken in some requests."""
        self._shares.attribute(namespace)

    def taken(self) -> None:
        """All requests of a connection that are there for now were taken in."""
        if len(self.connections) == 1:  # no other's can be waited for
            self._end_turn()
        else:
            self._open_turn()

    def waiting(self, client: RuntimeClient) -> int:
        """How many receives of a client wait for a message."""
        return self._server.waiting(client)

    # ── called by applications of this process ────────────────────────────────────────────────────────────────────────

    def ask(
        self, request: Request, principal: Principal | None = None, connection: HttpConnection | None = None
    ) -> RuntimeCall:
        """Its answer comes later. A receive for a principal ends when that is revoked, or its connection lost."""
        if principal is not None and type(request) is Receive:
            call: RuntimeCall = ConsumerCall(self, principal, connection)
        else:
            call = RuntimeCall(self)
        started_s = self.turns.clock()
        if not call.answer.done():
            self.request(call, 0, request, None)
        self._worked("" if principal is None else principal.namespace, self.turns.clock() - started_s)
        self._open_turn()
        return call

    async def execute(
        self, request: Request, principal: Principal | None = None, connection: HttpConnection | None = None
    ) -> Answer:
        """Ask when it is the turn of the principal's namespace, and wait for the answer.

        If this is cancelled, or the connection is lost before the answer was handed over, a receive that waits is
        forgotten and what was leased goes back. `ClientGone` is raised if the connection is lost before the answer.
        """
        if principal is not None:
            await self.turns.wait(principal.namespace)
        call = self.ask(request, principal, connection)
        try:
            return await call.answer
        except asyncio.CancelledError:
            call.abandon()
            raise
        finally:
            call.over()

    def report_to(self, events: TelemetryEvents, *others: Mapping[type, Observer]) -> None:
        """Report to telemetry, and to other observers of commands. Called once, at the start."""
        self._server.observe(events.observers, *others)
        self.access.on_arrived, self.access.on_matched = events.arrived, events.matched

    # ── called by the process ─────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """When clients can be heard, and not before: their leases run from then on."""
        self._has_begun = True
        self._perform_later(self._server.open(self._clock.now_ms()))

    @property
    def has_failed(self) -> bool:
        return self._has_failed

    @property
    def waiting_total(self) -> int:
        """How many receives wait for a message."""
        return self._server.waiting_total

    def release(self) -> None:
        """Tell those who wait for a message that none came: the server is about to stop."""
        self._perform(self._server.stop(self._clock.now_ms()))
        self._open_turn()

    async def stop(self) -> None:
        """Match what was accepted, commit everything, answer everybody, and hang up."""
        await self.access.close()
        await self._store.close()
        self._end_turn()
        if self._timer is not None:
            self._timer.cancel()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        ended = [asyncio.ensure_future(connection.ended.wait()) for connection in connections]
        if ended:
            await asyncio.wait(ended, timeout=self.limits.stop_s_max)
            for each in ended:
                each.cancel()
        if self.audit is not None:
            self.audit.file.close()

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effects: list[Effect]) -> None:
        if self._has_failed:
            return
        for effect in effects:
            if isinstance(effect, Record):
                self._shares.stage(len(effect.data))
                position = self._store.stage(effect.data, hurry=False)
                assert position == effect.position, "the journal and the queues count differently"
            elif isinstance(effect, Reply):
                effect.client.reply(effect)
            else:
                _logger.error("mistake when answering %.300r", effect.request, exc_info=effect.error)

    def _worked(self, namespace: str, seconds: float) -> None:
        """So long the loop was kept for a namespace, outside of its turns."""
        self.turns.charge(namespace, seconds)
        self._shares.attribute(namespace)

    def _perform_later(self, effects: list[Effect]) -> None:
        """Effects that come in a turn of their own."""
        self._perform(effects)
        self._open_turn()

    def _open_turn(self) -> None:
        """It ends when the loop has looked after all connections."""
        if not self._is_turn_open:
            self._is_turn_open = True
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_open = False
        self._take_back()
        self._flush()
        if self._server.is_commit_awaited:
            # With several clients, what has arrived meanwhile is taken in first: fewer and larger commits.
            self._store.hurry(at_once=len(self.connections) == 1)
        self._server.is_full, self._server.is_exhausted = self._store.is_full, self._store.is_exhausted
        staged_bytes = self._store.staged_bytes
        for namespace in self._shares.to_hold(staged_bytes) if not self._store.is_full else ():
            self.turns.hold(namespace)
        if staged_bytes > self.limits.staged_bytes_max and not self._is_disk_behind:
            self._is_disk_behind = True
            for connection in self.connections:
                connection.pause_for_disk()
        self._set_timer()

    def _committed(self, position: int) -> None:
        try:
            self._perform(self._server.committed(position, self._clock.now_ms()))
        except Exception as error:
            self._fail(error)
        self._flush()
        for namespace in self._shares.to_release(self._store.staged_bytes):
            self.turns.release(namespace)
        if self._is_disk_behind and self._store.staged_bytes <= self.limits.staged_bytes_max // 2:
            self._is_disk_behind = False
            for connection in self.connections:
                connection.resume_for_disk()

    def _take_back(self) -> None:
        """Not before: in the middle of a turn's effects, records would come out of order."""
        while self._returned and not self._has_failed:
            returned, self._returned = self._returned, []
            for reply in returned:
                try:
                    self._perform(self._server.undelivered(reply, self._clock.now_ms()))
                except Exception as error:
                    self._fail(error)

    def _flush(self) -> None:
        if self._answered:
            answered, self._answered = self._answered, []
            for connection in answered:
                connection.flush()

    def _set_timer(self) -> None:
        """One timer, for whatever happens first; one that fires too early does no harm."""
        if not self._has_begun:
            return
        if self._timer is not None and not self._server.may_wake_before(self._timer_ms):
            return
        wakeup_ms = self._server.wakeup_ms()
        if wakeup_ms is None or (self._timer is not None and self._timer_ms <= wakeup_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wakeup_ms
        delay_s = min(self._clock.seconds_until(wakeup_ms), TIMER_S_MAX)
        self._timer = self.loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._perform(self._server.tick(self._clock.now_ms()))
        except Exception as error:
            self._fail(error)
        self.access.go_on()  # temporary subscriptions may have ended
        self._open_turn()

    def _fail(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._on_failed(error)
