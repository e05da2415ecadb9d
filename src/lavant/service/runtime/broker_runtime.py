"""The broker in an event loop: performs the effects of the pure machine.

    connections ──request──► BrokerMachine ──Record──► store ──committed──► BrokerMachine ──Reply──► connections

In each turn of the loop, requests of all connections are processed first, with the same time for each namespace. At the
end of the turn, answers that are durable are sent, one write per connection, and records that a client waits for are
committed together.

Front ends and consumers inside the server call it directly:

    ask ──► long poll ──► leased ──► answered ──► delivered
                │            │          │
                └────────────┴──────────┴── abandoned: the poll ends, and leased messages return to their queue
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Protocol

from lavant import tracing
from lavant.broker.machine.effects import Effect, Observer, Record, Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.federation import MoveSubscription, SwitchBalancing
from lavant.broker.protocol.queues import DeleteQueue, Receive, Refused
from lavant.broker.queues.validation import refusal
from lavant.core.errors import Missing
from lavant.service.auth.audit.log import AuditLog
from lavant.service.auth.keys import Principal
from lavant.service.engines.interface import Engine
from lavant.service.net.admission import SendBuffers
from lavant.service.net.connections import ClientGone, RequestConnection
from lavant.service.observability.request_spans import traced
from lavant.service.observability.telemetry.events import TelemetryEvents
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.ingest.ingest import REQUESTS, Ingest
from lavant.service.runtime.limits import LIMITS, ServiceLimits
from lavant.service.runtime.turns import StagedShares, Turns
from lavant.service.storage.stores import RecordStore

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks

_logger = logging.getLogger(__name__)
TIMER_S_MAX = 10.0
"""Timers of the loop stop while the machine is suspended; the server's clock does not."""


class RuntimeCall:
    """One request from inside the process. It owns what it leases until it is abandoned or cancelled."""

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
        """The answer is no longer needed: a long poll ends, leased messages return to their queue."""
        self._is_abandoned = True
        if self._lease is not None:
            self._service.undelivered(self._lease)
        elif not self.answer.done() or self.answer.cancelled():
            self._service.forget(self)

    def finish(self) -> None:
        """The caller has the answer."""


class ConsumerCall(RuntimeCall):
    """A receive for a principal, abandoned when its key is revoked or its connection, if any, is lost."""

    def __init__(self, service: BrokerRuntime, principal: Principal, connection: RequestConnection | None) -> None:
        super().__init__(service)
        self._revocation = principal.revocation
        self._connection = connection
        self._revocation.watch(self._revoke)
        if connection is not None:
            connection.watch(self._lost)

    def reply(self, reply: Reply) -> None:
        if reply.queue and self._connection is not None and self._connection.is_lost:
            self._connection.abort()  # the loss may not have been reported yet
            self._lost()
        super().reply(reply)

    def finish(self) -> None:
        self._revocation.unwatch(self._revoke)
        if self._connection is not None and self._lease is None:
            self._connection.unwatch(self._lost)  # only a lease can be lost from here on

    def _revoke(self) -> None:
        self.abandon()
        if not self.answer.done():
            self.answer.set_result(Refused("AccessDenied", "the key was changed or removed"))

    def _lost(self) -> None:
        self.abandon()
        if not self.answer.done():
            self.answer.set_exception(ClientGone())
            self.answer.exception()  # retrieved, so that asyncio does not log it if nothing waits


class RuntimeClient(Hashable, Protocol):
    """Sends requests and takes replies."""

    def reply(self, reply: Reply) -> None: ...


class ServerConnection(RuntimeClient, Protocol):
    """A client whose answers are sent at the end of a turn, and which the server can stop reading from."""

    def flush(self) -> None: ...

    def pause_for_disk(self) -> None: ...

    def resume_for_disk(self) -> None: ...

    def keys_changed(self) -> None: ...

    def close(self) -> None: ...

    @property
    def ended(self) -> asyncio.Event: ...


class BrokerRuntime:
    """One server. `on_failed` is called with the reason when it cannot go on; it answers nothing from then on."""

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
        """Records every authorised request, if configured."""
        self.links: FederationLinks | None = None
        """The links to other brokers, if this one is in a federation, while it serves."""
        self.is_traced = tracing.is_on()
        self._server = server
        self._store = store
        self._clock = clock
        self._on_failed = on_failed
        self._has_failed = False
        self._answered: list[ServerConnection] = []
        self._returned: list[Reply] = []
        """Replies of this turn that could not be delivered."""
        self._is_turn_open = False
        self._is_disk_behind = False
        self._shares = StagedShares(limits.staged_bytes_fair)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.ingest = Ingest(
            server, engine, clock, limits=limits, perform=self.perform, commit=self._commit, on_failed=self.fail
        )
        self.ingest.on_worked = self._worked
        self._has_begun = False
        store.start(on_committed=self._committed, on_failed=self.fail)

    # ── called by connections ─────────────────────────────────────────────────────────────────────────────────────────

    def opened(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        if self._is_disk_behind:
            connection.pause_for_disk()

    def closed(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)
        self._server.gone(connection)

    def forget(self, client: RuntimeClient) -> None:
        """End its long polls."""
        self._server.gone(client)

    def undelivered(self, reply: Reply) -> None:
        """A reply was not delivered: at the end of the turn its messages return as if they had not been leased."""
        if reply.queue:
            self._returned.append(reply)
            self._open_turn()

    def has_answers(self, connection: ServerConnection) -> None:
        """Flush it at the end of the turn."""
        self._answered.append(connection)

    def request(self, client: RuntimeClient, number: int, request: Request, raw: bytes | None) -> None:
        self.requests += 1
        if self.links is not None and self.links.redirects.takes(client, number, request):
            return
        if self.is_traced:
            client = traced(client, request)
        if type(request) in REQUESTS and not self._has_failed:
            self.ingest.request(client, number, request)  # type: ignore[arg-type]
            return
        if isinstance(request, MoveSubscription | SwitchBalancing):
            self._ask_links(client, number, request)
            return
        try:
            self._perform(self._server.request(client, number, request, raw, self._clock.now_ms()))
        except Exception as error:  # a bug in the machine: its state may be half changed and must not be used
            self.fail(error)
        if type(request) is DeleteQueue:
            self.ingest.go_on()  # subscriptions may have ended with it

    def _ask_links(self, client: RuntimeClient, number: int, request: MoveSubscription | SwitchBalancing) -> None:
        if self.links is not None:
            self.links.request(client, number, request)
        else:
            error = Missing("this server is no broker of a federation; start it with --name")
            self.perform([Reply(client, number, refusal(error))])

    def had_turn(self, namespace: str) -> None:
        """A connection of this namespace has processed some requests."""
        self._shares.attribute(namespace)

    def taken(self) -> None:
        """All requests that a connection has for now were processed."""
        if len(self.connections) == 1:  # no other connection can add to the batch
            self._end_turn()
        else:
            self._open_turn()

    def waiting(self, client: RuntimeClient) -> int:
        """The number of long polls of a client."""
        return self._server.waiting(client)

    # ── called by applications of this process ────────────────────────────────────────────────────────────────────────

    def ask(
        self, request: Request, principal: Principal | None = None, connection: RequestConnection | None = None
    ) -> RuntimeCall:
        """Send a request; the answer comes later. A receive ends if its principal is revoked or its connection lost."""
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
        self, request: Request, principal: Principal | None = None, connection: RequestConnection | None = None
    ) -> Answer:
        """Send a request in a turn of the principal's namespace, and wait for the answer.

        If this is cancelled, or the connection is lost before the answer was delivered, a long poll ends and leased
        messages return to their queue. Raises `ClientGone` if the connection is lost before the answer.
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
            call.finish()

    def report_to(self, events: TelemetryEvents, *others: Mapping[type, Observer]) -> None:
        """Report to telemetry, and to other observers of commands. Called once, at the start."""
        self._server.observe(events.observers, *others)
        self.ingest.on_arrived, self.ingest.on_matched = events.arrived, events.matched

    # ── called by links ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def server(self) -> BrokerMachine:
        return self._server

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects outside a turn, and open one."""
        self._perform(effects)
        self._open_turn()

    def fail(self, error: Exception) -> None:
        """Stop: the state may be half changed."""
        if not self._has_failed:
            self._has_failed = True
            self._on_failed(error)

    # ── called by the process ─────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Call it when clients are served: their leases run from then on."""
        self._has_begun = True
        self.perform(self._server.open(self._clock.now_ms()))

    @property
    def has_failed(self) -> bool:
        return self._has_failed

    @property
    def waiting_total(self) -> int:
        """The number of long polls."""
        return self._server.waiting_total

    def release(self) -> None:
        """End all long polls without a message: the server is about to stop."""
        self._perform(self._server.stop(self._clock.now_ms()))
        self._open_turn()

    async def stop(self) -> None:
        """Match accepted publications, commit everything, answer all clients, and close."""
        await self.ingest.close()
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
                # Not the request itself: it may hold messages, or the secret of a webhook.
                _logger.error("error while answering %s", type(effect.request).__name__, exc_info=effect.error)

    def _worked(self, namespace: str, seconds: float) -> None:
        """Charge a namespace for time of the loop outside its turns."""
        self.turns.charge(namespace, seconds)
        self._shares.attribute(namespace)

    def _open_turn(self) -> None:
        """It ends when the loop has served all connections."""
        if not self._is_turn_open:
            self._is_turn_open = True
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_open = False
        self._take_back()
        self._flush()
        if self._server.is_commit_awaited:
            # With several clients, requests that arrived meanwhile are processed first: fewer and larger commits.
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

    def _commit(self) -> None:
        """Commit what a client waits for, before anything else is processed."""
        if self._server.is_commit_awaited and not self._has_failed:
            self._store.hurry(at_once=True)

    def _committed(self, position: int) -> None:
        try:
            self._perform(self._server.committed(position, self._clock.now_ms()))
        except Exception as error:
            self.fail(error)
        if self.links is not None:
            self.links.committed()
        self._flush()
        for namespace in self._shares.to_release(self._store.staged_bytes):
            self.turns.release(namespace)
        if self._is_disk_behind and self._store.staged_bytes <= self.limits.staged_bytes_max // 2:
            self._is_disk_behind = False
            for connection in self.connections:
                connection.resume_for_disk()

    def _take_back(self) -> None:
        """Only at the end: in the middle of a turn's effects, records would be out of order."""
        while self._returned and not self._has_failed:
            returned, self._returned = self._returned, []
            for reply in returned:
                try:
                    self._perform(self._server.undelivered(reply, self._clock.now_ms()))
                except Exception as error:
                    self.fail(error)

    def _flush(self) -> None:
        if self._answered:
            answered, self._answered = self._answered, []
            for connection in answered:
                connection.flush()

    def _set_timer(self) -> None:
        """One timer for the next event; firing too early does no harm."""
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
            self.fail(error)
        self.ingest.go_on()  # temporary subscriptions may have ended
        self._open_turn()
