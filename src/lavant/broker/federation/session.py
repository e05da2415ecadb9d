"""One connection to a neighbouring broker, and the settings of all of them."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable

import msgspec

from lavant.broker.federation.frames import LinkHello, LinkProbe, LinkPublications
from lavant.broker.federation.link_queue import size_of
from lavant.broker.federation.routes.roles import BrokerRole
from lavant.broker.federation.routes.router import RoutesChange
from lavant.broker.federation.routes.tables import NO_ROUTES
from lavant.broker.federation.state import LinkLimits
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.federation import SubscribedRoute


class FederationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a broker in its federation."""

    name: str
    identity: str
    role: BrokerRole = BrokerRole.ANY
    requires_advertisements: bool = False
    """Publishers must advertise what they publish; otherwise one that advertises nothing may publish anything."""
    limits: LinkLimits = LinkLimits()
    window_publications: int = 4096
    """Publications that may be sent to a neighbour before it confirms the first of them."""
    window_bytes: int = 4 << 20
    batch_bytes: int = 256 << 10
    """Publications in one frame, or messages of a subscription that moves; a control frame waits at most for one of
    them."""
    gather_ms: int = 3
    """While frames are under way, the next one waits so long for more publications: a frame costs both brokers as much
    time as tens of publications."""
    gather_frames: int = 2
    """Frames that are sent without waiting, and not confirmed yet."""
    gather_publications: int = 250
    """Of so many, a frame is large enough."""
    probe_ms: int = 5_000
    probe_timeout_ms: int = 15_000
    opening_timeout_ms: int = 10_000
    retry_ms: int = 200
    """Until publications that could not be delivered here are tried again; it doubles each time."""
    retry_ms_max: int = 3_000
    """The longest such pause: thousands may be held, and each attempt matches them."""
    migration_ms_max: int = 30_000
    """A subscription that moves is handed over by then, or stays; later if this broker works off a backlog."""
    migration_retry_ms_max: int = 2_000
    """The longest wait until a step of a move is repeated."""
    redirect_ms: int = 24 * 3_600_000
    """How long the name of a subscription that has moved is redirected."""


class LinkClient:
    """Takes the broker's replies for the machine; `committed` processes them."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def reply(self, reply: Reply) -> None:
        self.replies.append(reply)


class LinkStage(enum.Enum):
    """The stages of a connection; each names what it waits for."""

    HELLO = "hello"
    OPEN = "open"
    DISK = "disk"
    OPENED = "opened"
    UP = "up"
    CLOSED = "closed"


class HeldRelay(msgspec.Struct):
    """Publications of one batch that could not be delivered yet."""

    batch: LinkPublications
    indexes: list[int]
    retry_ms: int
    """When they are tried again."""
    pause_ms: int
    """Since they were tried last."""

    @property
    def numbers(self) -> list[int]:
        return [self.batch.first + index for index in self.indexes]


class LinkSession:
    """The state of one connection."""

    def __init__(self, connection: Hashable, now_ms: int, *, is_dialled: bool) -> None:
        self.connection = connection
        self.is_dialled = is_dialled
        self.stage = LinkStage.HELLO
        self.since_ms = now_ms
        """When the connection was made; from `UP` on, when the link was opened."""
        self.neighbour = ""
        """Its name, once it is a neighbour."""
        self.link = ""
        self.is_new = False
        self.peer: LinkHello | None = None
        self.theirs = (0, NO_ROUTES)
        """What the other side holds: the number of publications, and the digests of routes."""
        self.is_paused = False
        # routes
        self.changes: deque[tuple[int, RoutesChange]] = deque()
        """To be told when the record with this position is durable."""
        self.updates_sent = 0
        self.updates_applied = 0
        """By the other side."""
        self.updates_received = 0
        self.unfit: dict[bytes, SubscribedRoute] = {}
        """Told by the other side, by key: encrypted subscriptions that the matchers here cannot hold beside others."""
        self.unfit_at = 0
        """What `EncryptedShapes.ended` was when they were tried last."""
        # publications
        self.sent = 0
        self.acknowledged = 0
        """By the other side; next, when that last rose."""
        self.acknowledged_ms = 0
        self.acknowledges = 0
        """The last acknowledgement that was sent."""
        self.taken = 0
        """The last number that came over this connection."""
        self.in_flight: deque[tuple[int, int]] = deque()
        """Sent and not acknowledged: the last number, and the size."""
        self.in_flight_bytes = 0
        self.sent_ms = now_ms
        """When publications were last sent."""
        self.gathers_until_ms: int | None = None
        """Until then, publications wait for more of them."""
        self.held: list[HeldRelay] = []
        self.held_until_ms: int | None = None
        """When the first of them are tried again."""
        self.blocked = ""
        # probes
        self.probe_number = 0
        self.probe_due_ms = now_ms
        self.probe_sent_ms: int | None = None
        """Of the probe that is not answered yet."""
        self.rtt_ms: int | None = None
        self.their_blocked = ""
        self.probes: deque[tuple[int, int]] = deque()
        """Probes of the other side, and the relay after which each is answered."""

    @property
    def is_up(self) -> bool:
        return self.stage is LinkStage.UP

    def hold(self, held: HeldRelay) -> None:
        """Keep these until they are due."""
        self.held.append(held)
        self.held_until_ms = held.retry_ms if self.held_until_ms is None else min(self.held_until_ms, held.retry_ms)

    def take_due(self, now_ms: int) -> list[HeldRelay]:
        """Those that are tried again now; they are held no longer."""
        if self.held_until_ms is None or self.held_until_ms > now_ms:
            return []
        due = [each for each in self.held if each.retry_ms <= now_ms]
        self.held = [each for each in self.held if each.retry_ms > now_ms]
        self.held_until_ms = min((each.retry_ms for each in self.held), default=None)
        return due

    def take_all(self) -> list[HeldRelay]:
        held, self.held, self.held_until_ms = self.held, [], None
        return held

    def in_flight_until(self, number: int) -> None:
        """Publications up to this number were acknowledged."""
        while self.in_flight and self.in_flight[0][0] <= number:
            self.in_flight_bytes -= self.in_flight.popleft()[1]

    def room(self, publications: int, now_ms: int, config: FederationConfig) -> int:
        """How many of so many publications may be sent now."""
        self.gathers_until_ms = None
        left = config.window_publications - (self.sent - self.acknowledged)
        if self.is_paused or publications <= 0 or left <= 0 or self.in_flight_bytes >= config.window_bytes:
            return 0
        is_small = len(self.in_flight) >= config.gather_frames and publications < config.gather_publications
        if is_small and self.sent_ms <= now_ms < self.sent_ms + config.gather_ms:
            self.gathers_until_ms = self.sent_ms + config.gather_ms
            return 0
        return min(publications, left)

    def sends(self, batch: LinkPublications, now_ms: int) -> None:
        size = size_of(batch)
        self.sent, self.sent_ms = batch.last, now_ms
        self.in_flight.append((batch.last, size))
        self.in_flight_bytes += size

    def next_probe(self, now_ms: int, config: FederationConfig) -> LinkProbe | int | None:
        """The probe that is due, if one is; or for how long the last one has no answer, if that is too long.

        A neighbour that works off a backlog answers late, but confirms publications meanwhile.
        """
        if now_ms < self.probe_due_ms:
            return None
        self.probe_due_ms = now_ms + config.probe_ms
        if self.probe_sent_ms is None:
            self.probe_number += 1
            self.probe_sent_ms = now_ms
            return LinkProbe(self.probe_number)
        silent_ms = now_ms - max(self.probe_sent_ms, self.acknowledged_ms)
        return silent_ms if silent_ms >= config.probe_timeout_ms else None
