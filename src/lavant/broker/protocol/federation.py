"""The federation: neighbours, and the routes that brokers tell each other; the requests, and the answers to them.

Like the other requests, these values are also the format of the journal; routes cross links as well.
"""

from __future__ import annotations

from typing import TypeAlias

from lavant.broker.protocol.commands import Answer, CommandFor, QueryFor, Value
from lavant.broker.protocol.queues import Done
from lavant.broker.protocol.subscriptions import EncryptedFilter

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


class AdvertisedRoute(Value, tag="advertisement", frozen=True):
    """Publications that match may come from behind the broker that says so."""

    namespace: str
    filter: str


class SubscribedRoute(Value, tag="subscription", frozen=True):
    """Publications that match are wanted behind the broker that says so."""

    namespace: str
    filter: str | EncryptedFilter


RouteEntry: TypeAlias = BrokerMember | AdvertisedRoute | SubscribedRoute

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
