"""The links of a broker: opens them, keeps the neighbours' routes up to date, and passes publications on. Pure.

    connections ──frames──► FederationMachine ──LearnRoutes, AcknowledgeLink, …──► BrokerMachine ──► journal
                                 │    ▲                                                   │
          frames ◄───────────────┘    └────────── committed: what is durable may leave ◄──┘

Nothing leaves before it is durable: neither a publication, nor a route, nor an acknowledgement. Sessions are memory
only. After a reconnect, each side says what it holds of the other: publications go on from the last number, and routes
are compared by digest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import msgspec

from lavant.broker.federation.effects import CloseLink, FrameReceived, LinkEffect, LinkNotice, SendFrame
from lavant.broker.federation.frames import (
    BrokerMessage,
    LinkAcknowledged,
    LinkFrame,
    LinkHello,
    LinkLeave,
    LinkOpen,
    LinkOpened,
    LinkProbe,
    LinkProbeAnswer,
    LinkPublications,
    LinkRefused,
    PathFlush,
    RoutesApplied,
    RoutesUpdate,
    TraceAnswer,
    TraceRequest,
)
from lavant.broker.federation.link_queue import joined
from lavant.broker.federation.migration.machine import SubscriptionMigrations
from lavant.broker.federation.opening import LinkOpening, RefusedLink
from lavant.broker.federation.relays import LinkRelays
from lavant.broker.federation.routes.encrypted_shapes import EncryptedShapes
from lavant.broker.federation.routes.known_routes import KnownRoutes
from lavant.broker.federation.routes.members import opened_ms, passed_on
from lavant.broker.federation.routes.roles import FederationRoles, roles_of
from lavant.broker.federation.routes.route_updates import RouteUpdates
from lavant.broker.federation.routes.router import LOCAL, Router
from lavant.broker.federation.routes.tables import key_of
from lavant.broker.federation.session import FederationConfig, LinkClient, LinkSession, LinkStage
from lavant.broker.federation.state import Neighbour
from lavant.broker.machine.effects import Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Command
from lavant.broker.protocol.federation import (
    AcknowledgeLink,
    BrokerMember,
    NeighbourRemoved,
    RemoveNeighbour,
    RouteEntry,
)
from lavant.broker.protocol.queues import Refused
from lavant.broker.queues.timers import earliest
from lavant.core.errors import LavantError


class FederationMachine:
    """One for each broker. All methods return effects, to be performed in order."""

    def __init__(self, server: BrokerMachine, config: FederationConfig) -> None:
        self.server = server
        self.config = config
        self.state = server.broker.federation
        self.state.limits = config.limits
        self.client = LinkClient()
        self.router = Router()
        self._shapes = EncryptedShapes()
        self.own = BrokerMember(config.identity, config.name, 0, 0, [config.identity], "", config.role.value)
        self.members_behind: dict[str, dict[bytes, BrokerMember]] = {}
        """By neighbour."""
        self._roles: FederationRoles | None = None
        self.now_ms = 0
        self.effects: list[LinkEffect] = []
        self.sessions: dict[Hashable, LinkSession] = {}
        self.relays = LinkRelays(self)
        self.migrations = SubscriptionMigrations(self)
        self._opening = LinkOpening(self)
        self._updates = RouteUpdates(self, self._shapes)
        self._known = KnownRoutes(self.router, self._shapes, server.broker.subscriptions)
        self._early: list[tuple[Hashable, LinkFrame]] = []
        """Frames that open links, which came before all routes were derived."""
        self._number = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        """What to do when a command of this machine is durable, by its number."""
        self.sendable: dict[str, int] = {}
        """By link: the last number of its queue that is durable."""
        self.sent: dict[str, int] = {}
        """By link: the last number that may have been sent; before this start, all of its queue."""
        self._queued: deque[tuple[int, str, int]] = deque()
        """Position of a record, link, and the last number in its queue then. A neighbour that begins a new link counts
        from one again, also if records of the old link are not durable yet."""

    # ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, now_ms: int, address: str = "") -> list[LinkEffect]:
        """Call it after `BrokerMachine.open`. Clients connect to the address."""
        self._begin(now_ms)
        self.own = msgspec.structs.replace(
            self.own, epoch=self.server.queues.epoch, changes=self.state.changes, address=address
        )
        self.state.on_learned, self.state.on_neighbours = self._learned, self._neighbours_changed
        self.server.on_routed = self._routed
        self._neighbours_changed()
        self._flush()
        return self.effects

    def dialled(self, connection: Hashable, now_ms: int) -> list[LinkEffect]:
        """An outgoing connection is made."""
        self._begin(now_ms)
        self.sessions[connection] = session = LinkSession(connection, now_ms, is_dialled=True)
        self._opening.greet(session)
        return self.effects

    def accepted(self, connection: Hashable, now_ms: int) -> list[LinkEffect]:
        """An incoming connection is made."""
        self._begin(now_ms)
        self.sessions[connection] = LinkSession(connection, now_ms, is_dialled=False)
        return self.effects

    def frame(self, connection: Hashable, frame: LinkFrame, now_ms: int) -> list[LinkEffect]:
        """A frame came."""
        self._begin(now_ms)
        session = self.sessions.get(connection)
        if session is None or session.stage is LinkStage.CLOSED:
            return self.effects
        if self.router.is_busy and not session.is_up:  # a table that is not complete must not be compared
            self._early.append((connection, frame))
        else:
            self.attempt(session, lambda: self._handle(session, frame))
        self._flush()
        return self.effects

    def closed(self, connection: Hashable, now_ms: int) -> list[LinkEffect]:
        """A connection is lost."""
        self._begin(now_ms)
        session = self.sessions.pop(connection, None)
        if session is not None:
            self.relays.release(session)
        return self.effects

    def committed(self, now_ms: int) -> list[LinkEffect]:
        """More is durable. Call it after each `BrokerMachine.committed`, when its effects were performed."""
        self._begin(now_ms)
        while self.client.replies:
            replies, self.client.replies = self.client.replies, []
            for reply in replies:
                self._durably_done(reply)
        self._flush()
        return self.effects

    def relayed(self, connection: Hashable, number: int, entries: list[str | Refused], now_ms: int) -> list[LinkEffect]:
        """The answer to `RelayPublications`: what was accepted is durable."""
        self._begin(now_ms)
        self.relays.answered(connection, number, entries)
        self._flush()
        return self.effects

    def matched(self, token: int, now_ms: int) -> list[LinkEffect]:
        """The answer to `AwaitMatchers`."""
        self._begin(now_ms)
        self.migrations.matched(token)
        self._flush()
        return self.effects

    def move(self, namespace: str, name: str, broker: str, now_ms: int) -> list[LinkEffect]:
        """Move a subscription to another broker. Raises if it cannot be moved."""
        self._begin(now_ms)
        self.migrations.start(namespace, name, broker)
        return self.effects

    def pause(self, connection: Hashable) -> None:
        """The connection takes no more publications for now."""
        if connection in self.sessions:
            self.sessions[connection].is_paused = True

    def resume(self, connection: Hashable, now_ms: int) -> list[LinkEffect]:
        self._begin(now_ms)
        if connection in self.sessions:
            self.sessions[connection].is_paused = False
        self._flush()
        return self.effects

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Let time pass."""
        self._begin(now_ms)
        if not self.router.is_busy:
            self._handle_early()
        for session in list(self.sessions.values()):
            if session.is_up:
                self._probe(session)
                self.relays.retry(session)
            elif self.router.is_busy:
                session.since_ms = now_ms
            elif session.stage is not LinkStage.CLOSED and now_ms - session.since_ms >= self.config.opening_timeout_ms:
                self.close(session, f"the link was not opened within {self.config.opening_timeout_ms} ms")
        self.migrations.tick()
        self._flush()
        return self.effects

    @property
    def is_deriving(self) -> bool:
        """Whether routes are derived step by step; links open when that is done."""
        return self.router.is_busy or bool(self._early)

    @property
    def roles(self) -> FederationRoles:
        """Which brokers are heads, and which are edges."""
        if self._roles is None:
            self._roles = roles_of(self.own, self.members_behind.values())
        return self._roles

    def wakeup_ms(self) -> int | None:
        """When to call `tick`."""
        if self.is_deriving:
            return self.now_ms
        times = [self.migrations.wakeup_ms()]
        for session in self.sessions.values():
            if session.is_up:
                times.append(session.probe_due_ms)
                times.append(session.gathers_until_ms)
                times.append(session.held_until_ms)
            elif session.stage is not LinkStage.CLOSED:
                times.append(session.since_ms + self.config.opening_timeout_ms)
        return earliest(*times)

    # ── used by the opening of links ──────────────────────────────────────────────────────────────────────────────────

    def send(self, session: LinkSession, frame: LinkFrame, *, is_control: bool = True) -> None:
        self.effects.append(SendFrame(session.connection, frame, is_control))

    def attempt(self, session: LinkSession, action: Callable[[], None]) -> None:
        """Do something for a session, which is closed with the reason if that is refused."""
        try:
            action()
        except RefusedLink as refused:
            self.refuse(session, refused.code, refused.reason)
        except LavantError as error:
            self.refuse(session, "invalid", str(error))

    def refuse(self, session: LinkSession, code: str, reason: str) -> None:
        self.send(session, LinkRefused(code, reason, self.own.identity))
        self.close(session, reason)

    def close(self, session: LinkSession, reason: str) -> None:
        session.stage = LinkStage.CLOSED
        self.relays.release(session)
        self.effects.append(CloseLink(session.connection, reason))

    def notice(self, text: str, *, is_warning: bool = False) -> None:
        self.effects.append(LinkNotice(text, is_warning))

    def record(
        self, command: Command, then: Callable[[Any], None] | None = None, *, grows: bool = True, queue: str = ""
    ) -> None:
        """Apply a command; `then` is called with the answer when it is durable. Raises if it is refused."""
        self._number += 1
        if then is not None:
            self._then[self._number] = then
        try:
            effects = self.server.record(command, self.client, self._number, self.now_ms, grows=grows, queue=queue)
        except LavantError:
            self._then.pop(self._number, None)
            raise
        for effect in effects:
            if isinstance(effect, Reply) and effect.client is self.client:
                self._durably_done(effect)
            else:
                self.effects.append(effect)

    def remove_neighbour(self, name: str, why: str) -> None:
        """Remove a neighbour that may join again, and say what waited for it."""

        def say(removed: NeighbourRemoved) -> None:
            waited = f"; publications that waited for it and were deleted: {removed.publications}"
            self.notice(f"removed neighbour {name!r}: {why}{waited if removed.publications else ''}", is_warning=True)

        self.record(RemoveNeighbour(name, is_final=False), say, grows=False)

    def session_of(self, link: str) -> LinkSession | None:
        return next((each for each in self.sessions.values() if each.is_up and each.link == link), None)

    def opened(self, session: LinkSession) -> None:
        """The link is up: mend what differs."""
        neighbour = self.state.find(session.neighbour, session.link)
        received, digests = session.theirs
        neighbour.queue.check_received(neighbour.name, received, self.sent[session.link])
        if not session.is_dialled:
            self.send(session, LinkOpened())
        session.stage = LinkStage.UP
        session.since_ms = self.now_ms
        session.probe_due_ms = self.now_ms + self.config.probe_ms
        session.sent = session.acknowledged = received
        session.acknowledges = session.taken
        self.record(AcknowledgeLink(neighbour.name, neighbour.link, received), grows=False)
        outgoing = self.router.outgoing[neighbour.name]
        # What is not durable yet must not be told. It may be in the table, so all of it waits for the last record.
        session.changes.extend((self.server.position, change) for change in outgoing.mend(digests))

    # ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, session: LinkSession, frame: LinkFrame) -> None:
        match frame:
            case LinkHello() | LinkOpen() | LinkOpened() | LinkRefused():
                self._opening.handle(session, frame)
            case _ if not session.is_up:
                raise RefusedLink("invalid", f"a {type(frame).__name__} came before the link was open")
            case RoutesUpdate():
                self._updates.take(session, frame)
            case RoutesApplied():
                session.updates_applied = frame.number
            case LinkPublications():
                self.relays.take(session, frame)
            case LinkAcknowledged():
                self._acknowledged(session, frame.number)
            case LinkProbe():
                session.probes.append((frame.number, self.relays.last))
            case LinkProbeAnswer():
                if frame.number == session.probe_number and session.probe_sent_ms is not None:
                    session.rtt_ms = self.now_ms - session.probe_sent_ms
                    session.probe_sent_ms, session.their_blocked = None, frame.blocked
            case LinkLeave():
                self.remove_neighbour(session.neighbour, "it has removed this broker")
                self.close(session, "the neighbour has removed this broker")
            case BrokerMessage() | PathFlush():
                self.migrations.received(session, frame)
            case TraceRequest() | TraceAnswer():
                self.effects.append(FrameReceived(session.connection, session.neighbour, frame))

    def _handle_early(self) -> None:
        early, self._early = self._early, []
        for connection, frame in early:
            session = self.sessions.get(connection)
            if session is not None and session.stage is not LinkStage.CLOSED:
                self.attempt(session, partial(self._handle, session, frame))

    # ── routes ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _learned(self, neighbour: Neighbour, added: list[RouteEntry], removed: list[RouteEntry]) -> None:
        members = self.members_behind.setdefault(neighbour.name, {})
        self._roles = None
        for entry in added:
            if isinstance(entry, BrokerMember):
                members[key_of(entry)] = entry
            told = passed_on(entry, self.own.identity, opened_ms(neighbour.link))
            if told is not None:
                self._shapes.add(told)
                self.router.add(neighbour.name, told)
        for entry in removed:
            if isinstance(entry, BrokerMember):
                del members[key_of(entry)]
            told = passed_on(entry, self.own.identity, opened_ms(neighbour.link))
            if told is not None:
                self._shapes.remove(told)
                if not self.router.cancel((neighbour.name, key_of(entry))):
                    self.router.remove(neighbour.name, told)

    def _neighbours_changed(self) -> None:
        neighbours, self._roles = self.state.neighbours, None
        if not self._known.is_loaded:
            if not neighbours:
                return
            self._known.load(self.own, requires_advertisements=self.config.requires_advertisements)
        for name in [name for name in self.router.outgoing if name not in neighbours]:
            self.router.remove_neighbour(name)
            del self.members_behind[name]
        links = {each.link: each.queue.number for each in neighbours.values()}
        self.sendable = {link: self.sendable.get(link, number) for link, number in links.items()}
        self.sent = {link: self.sent.get(link, number) for link, number in links.items()}
        self.relays.follow(neighbours.values())
        for neighbour in neighbours.values():
            if neighbour.name not in self.router.outgoing:
                self._follow(neighbour)
        own = msgspec.structs.replace(self.own, changes=self.state.changes)
        if own != self.own:
            self.router.add(LOCAL, own)
            self.router.remove(LOCAL, self.own)
            self.own = own

    def _follow(self, neighbour: Neighbour) -> None:
        self.router.add_neighbour(neighbour.name)
        self._learned(neighbour, [each for each in neighbour.routes if isinstance(each, BrokerMember)], [])
        self._known.follow(neighbour.name, neighbour.routes)

    # ── publications that go ──────────────────────────────────────────────────────────────────────────────────────────

    def _routed(self) -> None:
        """A record has queued publications for neighbours."""
        for neighbour in self.state.neighbours.values():
            self._queued.append((self.server.position, neighbour.link, neighbour.queue.number))

    def _acknowledged(self, session: LinkSession, number: int) -> None:
        if number > session.sent:
            raise RefusedLink("invalid", f"publication {number} was confirmed, but only {session.sent} were sent")
        if number > session.acknowledged:
            session.acknowledged, session.acknowledged_ms = number, self.now_ms
            session.in_flight_until(number)
            self.record(AcknowledgeLink(session.neighbour, session.link, number), grows=False)

    def _pump(self, session: LinkSession) -> None:
        """Send publications that are durable, as far as the window allows."""
        until = self.sendable[session.link]
        queue = self.state.neighbours[session.neighbour].queue
        while count := session.room(until - session.sent, self.now_ms, self.config):
            for batch in joined(queue.after(session.sent, until, count, self.config.batch_bytes)):
                session.sends(batch, self.now_ms)
                self.sent[session.link] = max(self.sent[session.link], session.sent)
                origins = [each if each else self.own.identity for each in batch.origins]
                self.send(session, msgspec.structs.replace(batch, origins=origins), is_control=False)

    # ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, now_ms: int) -> None:
        self.effects = []
        self.now_ms = now_ms

    def _durably_done(self, reply: Reply) -> None:
        then = self._then.pop(reply.number, None)
        if then is not None:
            then(reply.answer)

    def _flush(self) -> None:
        """Send what may leave: routes, acknowledgements, answers to probes, publications."""
        self.router.step()
        durable = self.server.durable
        while self._queued and self._queued[0][0] <= durable:
            _, link, number = self._queued.popleft()
            if link in self.sendable:
                self.sendable[link] = number
        for session in list(self.sessions.values()):
            if not session.is_up:
                continue
            neighbour = self.state.neighbours.get(session.neighbour)
            if neighbour is None or neighbour.link != session.link:
                self.send(session, LinkLeave())
                self.close(session, "the neighbour was removed")
                continue
            self.attempt(session, partial(self._updates.retry, session))
            self._tell(session, durable)
            # What came over an earlier connection is confirmed when the neighbour has sent it again.
            floor = min(self.relays.durable(session.link), session.taken)
            if floor > session.acknowledges:
                session.acknowledges = floor
                self.send(session, LinkAcknowledged(floor))
            while session.probes and self.relays.is_done(session.probes[0][1]):
                self.send(session, LinkProbeAnswer(session.probes.popleft()[0], session.blocked))
            self._pump(session)
        self.migrations.advance()

    def _tell(self, session: LinkSession, durable: int) -> None:
        change = self.router.outgoing[session.neighbour].take()
        if change is not None:
            session.changes.append((self.server.position, change))
        while session.changes and session.changes[0][0] <= durable:
            _, change = session.changes.popleft()
            for part in change.parts():
                session.updates_sent += 1
                self.send(session, RoutesUpdate(session.updates_sent, part.added, part.removed, part.buckets))

    def _probe(self, session: LinkSession) -> None:
        """Send a probe behind all publications, or close a link that has not answered the last one."""
        probe = session.next_probe(self.now_ms, self.config)
        if isinstance(probe, LinkProbe):
            self.send(session, probe, is_control=False)
        elif probe is not None:
            waited = f"a probe has no answer after {probe} ms; it is opened again"
            self.notice(f"the link to {session.neighbour!r} is up but forwards nothing: {waited}", is_warning=True)
            self.close(session, "a probe has no answer")
