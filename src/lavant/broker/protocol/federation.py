"""The federation: neighbours, and the routes that brokers tell each other; the requests, and the answers to them.

Like the other requests, these values are also the format of the journal; routes cross links as well.
"""

from __future__ import annotations

from typing import TypeAlias

from lavant.broker.protocol.commands import Answer, CommandFor, QueryFor, Value
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Done
from lavant.broker.protocol.subscriptions import EncryptedFilter, Webhook

ANY_NAMESPACE = "*"
"""The namespace of the advertisement of a broker whose publishers may publish anything."""

# ── routes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class BrokerMember(Value, tag="member", frozen=True):
    """A broker that is behind a link."""

    identity: str
    """Of its data directory."""
    name: str
    epoch: int
    """Its number of starts."""
    changes: int
    """How often its neighbours changed. What was said at a larger number is newer."""
    path: list[str]
    """Identities from this broker to the one that tells of it, both included."""
    address: str = ""
    """Where its clients connect."""
    role: str = ""
    """As its operator set it: `auto`, `any`, `head` or `edge`. What `auto` amounts to follows from the tree."""
    opened_ms: list[int] = []
    """When each link between two of them was opened, by the clock of the broker that dialled; 0 if that is unknown."""


class AdvertisedRoute(Value, tag="advertisement", frozen=True):
    """Publications that match may come from behind the broker that says so."""

    namespace: str
    filter: str


class SubscribedRoute(Value, tag="subscription", frozen=True):
    """Publications that match are wanted behind the broker that says so."""

    namespace: str
    filter: str | EncryptedFilter


RouteEntry: TypeAlias = BrokerMember | AdvertisedRoute | SubscribedRoute

# ── subscriptions that move ───────────────────────────────────────────────────────────────────────────────────────────


class MovingSubscription(Value, frozen=True):
    """A subscription as its new broker makes it."""

    namespace: str
    name: str
    filter: str | EncryptedFilter
    queue: str
    """Without the namespace."""
    config: QueueConfig
    tags: dict[str, str]
    webhook: Webhook | None
    lease_ms: int
    dead_letters: QueueConfig | None
    """Settings of its dead-letter queue, in case that the new broker has to create it."""


class MovingMessage(Value, frozen=True):
    """A message that follows its subscription."""

    number: int
    """At the old broker."""
    body: bytes
    attributes: bytes
    sent_ms: int
    age_ms: int
    """Since it entered the queue."""
    delay_ms: int
    """Until it becomes visible."""
    receive_count: int
    first_received_ms: int
    group: str
    deduplication: str
    origin: str | None
    """The queue whose dead letter it is."""
    reason: str = ""
    """The last reason for a failed attempt that a consumer gave."""
    attempts: int = 0
    """Receives in the queue whose dead letter it is."""


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class NeighbourRemoved(Answer, tag="neighbour-removed", frozen=True):
    """What waited for the neighbour, and was deleted."""

    name: str
    publications: int
    bytes: int
    oldest_ms: int | None
    """When the oldest of them was accepted."""
    ids: list[str]
    """Of the first of them."""


class NeighbourView(Value, frozen=True):
    name: str
    identity: str
    link: str
    waiting: int
    """Publications that the neighbour has not confirmed."""
    waiting_bytes: int
    oldest_ms: int | None
    forwarded: int
    """Publications that were queued for the neighbour since it was added."""
    received: int
    """Publications that came from it."""
    members: int
    """Brokers behind it."""
    advertisements: int
    """Advertisements held of it, like the next one."""
    subscriptions: int


class SubscriptionMigrated(Answer, tag="subscription-migrated", frozen=True):
    name: str
    broker: str
    address: str
    """For clients of that broker."""
    pause_ms: int
    """For so long, neither queue delivered."""


class FederationDescribed(Answer, tag="federation-described", frozen=True):
    changes: int
    neighbours: list[NeighbourView]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class AddNeighbour(CommandFor[Done], tag="add-neighbour", frozen=True):
    """Add a neighbouring broker, with an empty queue and no routes."""

    name: str
    identity: str
    link: str
    """Identifies this link on both sides: a neighbour that is removed and joins again has another one."""


class RemoveNeighbour(CommandFor[NeighbourRemoved], tag="remove-neighbour", frozen=True):
    """Remove a neighbouring broker, its routes, and the publications that wait for it."""

    name: str
    is_final: bool = True
    """It may not join again by itself; this broker has to dial it."""


class LearnRoutes(CommandFor[Done], tag="learn-routes", frozen=True):
    """Change the routes that a neighbour has told, as one step."""

    neighbour: str
    link: str
    added: list[RouteEntry]
    removed: list[bytes] = []
    """Keys of routes."""
    buckets: list[int] = []
    """Routes of these buckets that are not in `added` are removed too."""


class AcknowledgeLink(CommandFor[Done], tag="acknowledge-link", frozen=True):
    """Delete the publications that a neighbour has confirmed from its queue."""

    neighbour: str
    link: str
    number: int
    """The last one."""


class DescribeFederation(QueryFor[FederationDescribed], tag="describe-federation", frozen=True):
    """Return the neighbours of this broker, and what waits for them."""


class MoveSubscription(CommandFor[SubscriptionMigrated], tag="move-subscription", frozen=True):
    """Move a subscription with its queue to another broker; answered when that delivers."""

    name: str
    broker: str
    namespace: str = ""


class SwitchBalancing(CommandFor[Done], tag="switch-balancing", frozen=True):
    """Let this broker take part in balancing, or not, until it restarts."""

    is_on: bool


class RedirectSubscription(CommandFor[Done], tag="redirect-subscription", frozen=True):
    """Redirect the name of a subscription that a client makes at another broker, unless it is here."""

    namespace: str
    name: str
    broker: str
    address: str
    redirect_ms: int
    """How long from now on; 0 to end it."""


class OfferSubscription(CommandFor[Done], tag="offer-subscription", frozen=True):
    """Begin to move a subscription to another broker: from now on, note which publications its queue gets."""

    migration: str
    namespace: str
    name: str
    target: str
    """The identity of the other broker; next its name and the address for its clients."""
    broker: str
    address: str
    deadline_ms: int
    """The move is undone if the subscription is not handed over by then."""


class HandOverSubscription(CommandFor[Done], tag="hand-over-subscription", frozen=True):
    """Stop to deliver to a subscription that moves: the new broker takes all further publications."""

    migration: str


class ForgetMessages(CommandFor[Done], tag="forget-messages", frozen=True):
    """Delete messages that the new broker of their subscription has taken."""

    migration: str
    numbers: list[int]


class EndDeparture(CommandFor[Done], tag="end-departure", frozen=True):
    """End a move at the old broker: it is complete if the subscription was handed over, otherwise undone."""

    migration: str
    redirect_ms: int
    """How long its name is redirected from now on."""


class PrepareArrival(CommandFor[Done], tag="prepare-arrival", frozen=True):
    """Make a subscription that moves here. Its queue gets publications, and delivers none until it is opened."""

    migration: str
    source: str
    """The identity of the old broker, and its name."""
    broker: str
    subscription: MovingSubscription


class TakeMessages(CommandFor[Done], tag="take-messages", frozen=True):
    """Put messages that follow their subscription into its queue; those that are there already are left out."""

    migration: str
    messages: list[MovingMessage]


class OpenArrival(CommandFor[Done], tag="open-arrival", frozen=True):
    """Deliver from the queue of a subscription that moved here: messages that followed it come first."""

    migration: str
    taken: list[tuple[str, bytes]]
    """Publications that the old queue got: their origin (empty for this broker), and their numbers, 64 bits each. They
    are deleted from the new queue."""
    number: int
    """The last message number at the old broker: those here are above it, so that no receipt fits both."""


class EndArrival(CommandFor[Done], tag="end-arrival", frozen=True):
    """End a move at the new broker: it is complete if the queue was opened, otherwise undone."""

    migration: str
