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
from itertools import islice
from typing import Any

import msgspec

from lavant.broker.federation.effects import (
    CloseLink,
    FrameReceived,
    LinkEffect,
    LinkNotice,
    SendFrame,
)
from lavant.broker.federation.frames import (
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
    RoutesApplied,
    RoutesUpdate,
    TraceAnswer,
    TraceRequest,
)
from lavant.broker.federation.link_queue import size_of
from lavant.broker.federation.opening import LinkOpening, RefusedLink
from lavant.broker.federation.relays import LinkRelays
from lavant.broker.federation.routes.encrypted_shapes import EncryptedShapes
from lavant.broker.federation.routes.members import loop_of, passed_on
from lavant.broker.federation.routes.router import ANYTHING, LOCAL, Router
from lavant.broker.federation.routes.tables import key_of
from lavant.broker.federation.session import FederationConfig, LinkSession, LinkStage
from lavant.broker.federation.state import Neighbour
from lavant.broker.machine.effects import Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Command
from lavant.broker.protocol.federation import (
    AcknowledgeLink,
    AdvertisedRoute,
    BrokerMember,
    LearnRoutes,
    NeighbourRemoved,
    RemoveNeighbour,
    RouteEntry,
    SubscribedRoute,
)
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import AdvertisementState, SubscriptionState
from lavant.broker.queues.timers import earliest
from lavant.core.errors import LavantError


class LinkClient:
    """Takes the broker's replies for the machine; `committed` processes them."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def reply(self, reply: Reply) -> None:
        self.replies.append(reply)


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
        self.own = BrokerMember(config.identity, config.name, 0, 0, [config.identity])
        self.members_behind: dict[str, dict[bytes, BrokerMember]] = {}
        """By neighbour."""
        self.now_ms = 0
        self.effects: list[LinkEffect] = []
        self.sessions: dict[Hashable, LinkSession] = {}
        self.relays = LinkRelays(self)
        self._opening = LinkOpening(self)
        self._is_loaded = False
        self._number = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        """What to do when a command of this machine is durable, by its number."""
        self._durable: dict[str, int] = {}
        """By neighbour: the last number of its queue that is durable."""
        self._queued: deque[tuple[int, str, int]] = deque()
        """Position of a record, neighbour, and the last number in its queue then."""

    # ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, now_ms: int) -> list[LinkEffect]:
        """Call it after `BrokerMachine.open`."""
        self._begin(now_ms)
        self.own = msgspec.structs.replace(self.own, epoch=self.server.queues.epoch, changes=self.state.changes)
        self.state.on_learned, self.state.on_neighbours = self._learned, self._neighbours_changed
        self.server.on_routed = self._routed
        self._neighbours_changed()
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
        for session in list(self.sessions.values()):
            if session.is_up:
                self._probe(session)
                self.relays.retry(session)
            elif session.stage is not LinkStage.CLOSED and now_ms - session.since_ms >= self.config.opening_timeout_ms:
                self.close(session, f"the link was not opened within {self.config.opening_timeout_ms} ms")
        self._flush()
        return self.effects

    def wakeup_ms(self) -> int | None:
        """When to call `tick`."""
        times: list[int | None] = []
        for session in self.sessions.values():
            if session.is_up:
                times.append(session.probe_due_ms)
                times += [held.retry_ms for held in islice(session.held.values(), 1)]
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
        self.send(session, LinkRefused(code, reason))
        self.close(session, reason)

    def close(self, session: LinkSession, reason: str) -> None:
        session.stage = LinkStage.CLOSED
        self.relays.release(session)
        self.effects.append(CloseLink(session.connection, reason))

    def notice(self, text: str, *, is_warning: bool = False) -> None:
        self.effects.append(LinkNotice(text, is_warning))

    def record(self, command: Command, then: Callable[[Any], None] | None = None, *, grows: bool = True) -> None:
        """Apply a command; `then` is called with the answer when it is durable. Raises if it is refused."""
        self._number += 1
        if then is not None:
            self._then[self._number] = then
        try:
            effects = self.server.record(command, self.client, self._number, self.now_ms, grows=grows)
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
            waited = f"; {removed.publications} publications that waited for it were deleted"
            self.notice(f"removed neighbour {name!r}: {why}{waited if removed.publications else ''}", is_warning=True)

        self.record(RemoveNeighbour(name, is_final=False), say, grows=False)

    def session_of(self, link: str) -> LinkSession | None:
        return next((each for each in self.sessions.values() if each.is_up and each.link == link), None)

    def opened(self, session: LinkSession) -> None:
        """The link is up: mend what differs."""
        neighbour = self.state.find(session.neighbour, session.link)
        received, digests = session.theirs
        queue = neighbour.queue
        if not queue.number - len(queue) <= received <= queue.number:
            numbers = f"has publications up to {received}, and the queue for it {len(queue)} up to {queue.number}"
            why = "a data directory was replaced by an older copy; remove the neighbour"
            raise RefusedLink("invalid", f"{neighbour.name!r} {numbers}: {why}")
        if not session.is_dialled:
            self.send(session, LinkOpened())
        session.stage = LinkStage.UP
        session.since_ms = self.now_ms
        session.probe_due_ms = self.now_ms + self.config.probe_ms
        session.sent = session.acknowledged = received
        session.acknowledges = self.relays.durable(session.link)
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
                self._learn(session, frame)
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
            case TraceRequest() | TraceAnswer():
                self.effects.append(FrameReceived(session.connection, session.neighbour, frame))

    # ── routes ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, session: LinkSession, update: RoutesUpdate) -> None:
        if update.number != session.updates_received + 1:
            raise RefusedLink("invalid", f"update {update.number} came after {session.updates_received}")
        session.updates_received = update.number
        self._shapes.check(update.added)
        loops = [loop_of(entry, self.own) for entry in update.added if isinstance(entry, BrokerMember)]

        def applied(answer: object) -> None:
            if session.is_up:
                self.send(session, RoutesApplied(update.number))

        command = LearnRoutes(session.neighbour, session.link, update.added, update.removed, update.buckets)
        self.record(command, applied)
        for loop in loops:
            if loop is not None:
                self._break(loop)

    def _break(self, loop: list[str]) -> None:
        """Two joins at the same time have closed a cycle: the broker with the smallest identity removes its younger
        link on it."""
        if min(loop) != self.own.identity:
            return
        on_it = [each for each in self.state.neighbours.values() if each.identity in (loop[1:2] + loop[-1:])]
        if len(on_it) == 2:
            younger = max(on_it, key=lambda each: each.serial)
            names = {each.identity: each.name for known in self.members_behind.values() for each in known.values()}
            path = " - ".join([self.own.name, *(names.get(each, each) for each in loop[1:]), self.own.name])
            self.remove_neighbour(younger.name, f"it closes the cycle {path}")

    def _learned(self, neighbour: Neighbour, added: list[RouteEntry], removed: list[RouteEntry]) -> None:
        members = self.members_behind.setdefault(neighbour.name, {})
        for entry in added:
            self._shapes.add(entry)
            if isinstance(entry, BrokerMember):
                members[key_of(entry)] = entry
            told = self._passed_on(entry)
            if told is not None:
                self.router.add(neighbour.name, told)
        for entry in removed:
            self._shapes.remove(entry)
            if isinstance(entry, BrokerMember):
                del members[key_of(entry)]
            told = self._passed_on(entry)
            if told is not None:
                self.router.remove(neighbour.name, told)

    def _passed_on(self, entry: RouteEntry) -> RouteEntry | None:
        return passed_on(entry, self.own.identity) if isinstance(entry, BrokerMember) else entry

    def _changed(self, state: SubscriptionState | AdvertisementState, is_added: bool) -> None:
        """A local client subscribes or advertises, or ceases to."""
        if isinstance(state, SubscriptionState):
            entry: RouteEntry = SubscribedRoute(state.namespace, state.filter)
        else:
            entry = AdvertisedRoute(state.namespace, state.filter)
        if is_added:
            self._shapes.add(entry)
            self.router.add(LOCAL, entry)
        else:
            self._shapes.remove(entry)
            self.router.remove(LOCAL, entry)

    def _neighbours_changed(self) -> None:
        neighbours = self.state.neighbours
        if not self._is_loaded:
            if not neighbours:
                return  # nobody is to be told of anything
            self._load()
        for name in [name for name in self.router.outgoing if name not in neighbours]:
            self.router.remove_neighbour(name)
            del self._durable[name], self.members_behind[name]
        self.relays.follow(neighbours.values())
        for neighbour in neighbours.values():
            if neighbour.name not in self.router.outgoing:
                self._follow(neighbour)
        own = msgspec.structs.replace(self.own, changes=self.state.changes)
        if own != self.own:
            self.router.add(LOCAL, own)
            self.router.remove(LOCAL, self.own)
            self.own = own

    def _load(self) -> None:
        """All that local clients have."""
        self._is_loaded = True
        self.router.add(LOCAL, self.own)
        if not self.config.requires_advertisements:
            self.router.add(LOCAL, ANYTHING)
        subscriptions = self.server.broker.subscriptions
        _, subscribed, advertised = subscriptions.contents()
        for subscription in subscribed:
            self._changed(subscription, True)
        for advertisement in advertised:
            self._changed(advertisement, True)
        subscriptions.on_changed = self._changed

    def _follow(self, neighbour: Neighbour) -> None:
        self.router.add_neighbour(neighbour.name)
        self._durable[neighbour.name] = neighbour.queue.number
        self._learned(neighbour, list(neighbour.routes), [])

    # ── publications that go ──────────────────────────────────────────────────────────────────────────────────────────

    def _routed(self) -> None:
        """A record has queued publications for neighbours."""
        for neighbour in self.state.neighbours.values():
            self._queued.append((self.server.position, neighbour.name, neighbour.queue.number))

    def _acknowledged(self, session: LinkSession, number: int) -> None:
        if number > session.sent:
            raise RefusedLink("invalid", f"publication {number} was confirmed, but only {session.sent} were sent")
        if number > session.acknowledged:
            session.acknowledged = number
            session.in_flight_until(number)
            self.record(AcknowledgeLink(session.neighbour, session.link, number), grows=False)

    def _pump(self, session: LinkSession) -> None:
        """Send publications that are durable, as far as the window allows."""
        config = self.config
        until = self._durable[session.neighbour]
        while not session.is_paused and session.sent < until:
            count = config.window_publications - (session.sent - session.acknowledged)
            if count <= 0 or session.in_flight_bytes >= config.window_bytes:
                return
            queue = self.state.neighbours[session.neighbour].queue
            for batch in queue.after(session.sent, until, count, config.batch_bytes):
                size = size_of(batch)
                session.sent = batch.last
                session.in_flight.append((batch.last, size))
                session.in_flight_bytes += size
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
        durable = self.server.durable
        while self._queued and self._queued[0][0] <= durable:
            _, name, number = self._queued.popleft()
            if name in self._durable:
                self._durable[name] = number
        for session in list(self.sessions.values()):
            if not session.is_up:
                continue
            neighbour = self.state.neighbours.get(session.neighbour)
            if neighbour is None or neighbour.link != session.link:
                self.send(session, LinkLeave())
                self.close(session, "the neighbour was removed")
                continue
            self._tell(session, durable)
            floor = self.relays.durable(session.link)
            if floor > session.acknowledges:
                session.acknowledges = floor
                self.send(session, LinkAcknowledged(floor))
            while session.probes and self.relays.is_done(session.probes[0][1]):
                self.send(session, LinkProbeAnswer(session.probes.popleft()[0], session.blocked))
            self._pump(session)

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
        if self.now_ms < session.probe_due_ms:
            return
        config = self.config
        if session.probe_sent_ms is None:
            session.probe_number += 1
            session.probe_sent_ms = self.now_ms
            self.send(session, LinkProbe(session.probe_number), is_control=False)
        elif self.now_ms - session.probe_sent_ms >= config.probe_timeout_ms:
            waited = f"a probe has no answer after {self.now_ms - session.probe_sent_ms} ms; it is opened again"
            self.notice(f"the link to {session.neighbour!r} is up but forwards nothing: {waited}", is_warning=True)
            self.close(session, "a probe has no answer")
        session.probe_due_ms = self.now_ms + config.probe_ms
