"""The frames that cross a link between two brokers, in both directions.

    dialler                                          acceptor
      │  LinkHello                                      │      who is here; LinkRefused and the end, if it may not join
      │ ──────────────────────────────────────────────► │
      │                                      LinkHello  │      with the link that the acceptor knows, if any
      │ ◄────────────────────────────────────────────── │
      │  LinkOpen                                       │      continues that link, or begins a new one
      │ ──────────────────────────────────────────────► │
      │                                     LinkOpened  │
      │ ◄────────────────────────────────────────────── │
      │  RoutesUpdate …  ◄──►  RoutesApplied            │
      │  LinkPublications …  ◄──►  LinkAcknowledged     │
      │  LinkProbe  ◄──►  LinkProbeAnswer               │

Control frames overtake publications, which wait for their turn in the queue of the link.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.broker.protocol.commands import Value
from lavant.broker.protocol.federation import BrokerMember, MovingMessage, MovingSubscription, RouteEntry

LINK_PROTOCOL = 3


class LinkHello(Value, tag="hello", frozen=True):
    """Who is here, and what it holds of the other side."""

    protocol: int
    name: str
    identity: str
    """Of the data directory."""
    epoch: int
    """The number of starts."""
    changes: int
    """How often its neighbours changed."""
    link: str
    """The link that it knows with the other side; empty if there is none, and in the dialler's hello."""
    members: list[BrokerMember]
    """The brokers on this side of the link, this one included; only in the acceptor's hello."""
    received: int
    """All publications of the other side up to this number are durable here."""
    digests: bytes
    """Of the routes that the other side has told, by bucket."""
    now_ms: int
    role: str = ""
    """As its operator set it, like the role of a member."""
    token: bytes = b""
    """A key with the scope `broker`."""


class LinkOpen(Value, tag="open", frozen=True):
    """The dialler continues a link, or begins a new one; fields as in the hello."""

    link: str
    is_new: bool
    members: list[BrokerMember]
    received: int
    digests: bytes


class LinkOpened(Value, tag="opened", frozen=True):
    """The link is open on both sides."""


class LinkRefused(Value, tag="refused", frozen=True):
    """Why the connection is closed."""

    code: str
    """`protocol`, `name`, `self`, `cycle`, `removed`, `linked`, `twice`, `invalid`, `full` or `key`."""
    reason: str
    broker: str = ""
    """The identity of the one that refuses, once it has read a hello."""


class RoutesUpdate(Value, tag="routes", frozen=True):
    """A change of the routes that the receiver holds of the sender. It is applied as one step."""

    number: int
    """Counts up on this connection."""
    added: list[RouteEntry]
    removed: list[bytes]
    """Keys."""
    buckets: list[int]
    """The routes of these buckets are exactly those in `added`."""


class RoutesApplied(Value, tag="routes-applied", frozen=True):
    """Everything up to this update is durable."""

    number: int


class LinkPublications(Value, tag="publications", frozen=True):
    """Publications of one namespace and scheme, in order. Columns of numbers are little endian."""

    first: int
    """The number of the first one on this link; the others follow."""
    namespace: str
    bodies: list[bytes]
    points: list[bytes]
    """Vectors of encrypted publications; empty for plain ones."""
    origins: list[str]
    """Identities; in a broker's own queue, an empty one stands for itself."""
    origin_of: bytes
    """16 bits each, an index in `origins`."""
    origin_numbers: bytes
    """64 bits each."""
    hops: bytes
    """8 bits each: the links it had crossed before this one."""
    entered_ms: int
    """When it entered the queue of the link, by the sender's clock."""

    @property
    def last(self) -> int:
        return self.first + len(self.bodies) - 1


class LinkAcknowledged(Value, tag="acknowledged", frozen=True):
    """All publications up to this number are durable here."""

    number: int


class LinkProbe(Value, tag="probe", frozen=True):
    """Asks for an answer, on the path of publications."""

    number: int


class LinkProbeAnswer(Value, tag="probe-answer", frozen=True):
    """Everything that was sent before the probe has been processed."""

    number: int
    blocked: str = ""
    """Why some publications are held back, if so."""


class LinkLeave(Value, tag="leave", frozen=True):
    """The sender has removed this neighbour."""


class TraceRequest(Value, tag="trace", frozen=True):
    """Asks where a publication would go from the receiver on."""

    id: str
    namespace: str
    publication: bytes
    path: list[str]
    """The names of the brokers it has passed."""


class TraceAnswer(Value, tag="trace-answer", frozen=True):
    """What the receiver and the brokers behind it would do with a publication."""

    id: str
    hops: list[bytes]
    """One object in JSON for each broker."""


# ── subscriptions that move, see `lavant.broker.federation.migration` ─────────────────────────────────────────────────


class MigrationOffer(Value, tag="offer", frozen=True):
    """The old broker asks the new one to prepare."""

    migration: str
    broker: str
    subscription: MovingSubscription


class MigrationRefused(Value, tag="refused", frozen=True):
    """The new broker cannot take the subscription."""

    migration: str
    reason: str


class MigrationMessages(Value, tag="messages", frozen=True):
    """Messages of the old queue."""

    migration: str
    messages: list[MovingMessage]


class MessagesTaken(Value, tag="taken", frozen=True):
    """These are durable at the new broker."""

    migration: str
    numbers: list[int]


class MigrationOpen(Value, tag="open", frozen=True):
    """All messages that were not in flight have followed: the new queue may deliver, without what the old one got."""

    migration: str
    taken: list[tuple[str, bytes]]
    number: int


class MigrationOpened(Value, tag="opened", frozen=True):
    """The new queue delivers."""

    migration: str


class MigrationOver(Value, tag="over", frozen=True):
    """The old broker does not know the move: it is complete or undone."""

    migration: str


class MigrationUnknown(Value, tag="unknown", frozen=True):
    """The new broker does not know the move."""

    migration: str


class MigrationQuestion(Value, tag="question", frozen=True):
    """The new broker asks whether the move goes on."""

    migration: str


MigrationContent: TypeAlias = (
    MigrationOffer
    | MigrationRefused
    | MigrationMessages
    | MessagesTaken
    | MigrationOpen
    | MigrationOpened
    | MigrationOver
    | MigrationUnknown
    | MigrationQuestion
)


class BalancingContent(Value, tag="balancing", frozen=True):
    """A message of the balancing loop; links carry it and do not look inside."""

    message: bytes


class BrokerMessage(Value, tag="message", frozen=True):
    """From one broker to another, passed on by those between them. It may get lost."""

    source: str
    """Identities."""
    target: str
    content: MigrationContent | BalancingContent


class PathFlush(Value, tag="flush", frozen=True):
    """Passed on from broker to broker when all publications that were matched before have gone the same way."""

    source: str
    target: str
    migration: str
    step: str
    """Of the move: `offered`, `prepared` or `handed over`."""
    number: int
    """The last one of them on this link."""


LinkFrame: TypeAlias = (
    LinkHello
    | LinkOpen
    | LinkOpened
    | LinkRefused
    | RoutesUpdate
    | RoutesApplied
    | LinkPublications
    | LinkAcknowledged
    | LinkProbe
    | LinkProbeAnswer
    | LinkLeave
    | TraceRequest
    | TraceAnswer
    | BrokerMessage
    | PathFlush
)

decode_link_frame = msgspec.msgpack.Decoder(LinkFrame).decode
