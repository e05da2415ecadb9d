"""The federation as one broker sees it, for `/federation`, `lavant federation` and `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from lavant.broker.federation.trace import DOWN, OPENING, STALLED, UP, links_of, members_of
from lavant.broker.protocol.federation import BrokerMember
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.service.observability.openmetrics import MetricFamily

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks

LINK_STATES = (UP, OPENING, STALLED, DOWN)


class FederationLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a neighbour."""

    neighbour: str
    identity: str
    state: str
    """`up`, `opening`, `stalled` (it is open and forwards nothing) or `down`."""
    fault: str | None
    """Why it is not up, or why the neighbour holds publications back."""
    address: str | None
    """Where this broker dials; null if the neighbour does."""
    waiting: int
    """Publications that the neighbour has not confirmed."""
    waiting_bytes: int
    oldest_s: float
    """Age of the oldest of them."""
    forwarded: int
    received: int
    hops_max: int
    """The most links that a received publication has crossed."""
    advertisements: int
    """Held of the neighbour, like the next one."""
    subscriptions: int
    told: int
    """Routes that the neighbour was told."""
    covered: int
    """Routes that it was not told, because another one covers them."""
    rtt_ms: int | None
    """Of the last probe."""


class FederationMember(msgspec.Struct, frozen=True, kw_only=True):
    """A broker somewhere in the federation."""

    name: str
    identity: str
    epoch: int
    path: list[str]
    """The names of the brokers from this one to it, both included."""
    address: str
    """For its clients."""
    role: str
    """`head`, `edge`, or `any` if it serves publishers and subscribers."""
    cluster: str
    """The name of the head of its cluster; empty if there is none."""


class FederationJoin(msgspec.Struct, frozen=True, kw_only=True):
    """An address that this broker joins."""

    address: str
    neighbour: str
    """The broker that answered there last; empty if none has."""
    fault: str | None


class FederationView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    identity: str
    epoch: int
    links: list[FederationLink]
    members: list[FederationMember]
    """All brokers, this one first, then by distance and name."""
    joins: list[FederationJoin]


def federation_view(links: FederationLinks) -> FederationView:
    own, now_ms = links.machine.own, links.clock.now_ms()
    faults = {dialer.neighbour: dialer.fault for dialer in links.dialers if dialer.neighbour}
    addresses = {dialer.neighbour: str(dialer.address) for dialer in links.dialers if dialer.neighbour}
    return FederationView(
        name=own.name,
        identity=own.identity,
        epoch=own.epoch,
        links=[
            FederationLink(
                neighbour=each.name,
                identity=each.identity,
                state=each.state,
                fault=each.blocked or (None if each.state == UP else faults.get(each.name)),
                address=addresses.get(each.name),
                waiting=each.waiting,
                waiting_bytes=each.waiting_bytes,
                oldest_s=0.0 if each.oldest_ms is None else max(0, now_ms - each.oldest_ms) / SECOND_MS,
                forwarded=each.forwarded,
                received=each.received,
                hops_max=each.hops_max,
                advertisements=each.advertisements,
                subscriptions=each.subscriptions,
                told=each.told,
                covered=each.covered,
                rtt_ms=each.rtt_ms,
            )
            for each in links_of(links.machine)
        ],
        members=_members(links),
        joins=[
            FederationJoin(address=str(dialer.address), neighbour=dialer.neighbour, fault=dialer.fault)
            for dialer in links.dialers
        ],
    )


def _members(links: FederationLinks) -> list[FederationMember]:
    own, found, roles = links.machine.own, members_of(links.machine), links.machine.roles
    names = {own.identity: own.name, **{each.identity: each.name for each in found}}

    def member(each: BrokerMember, path: Iterable[str]) -> FederationMember:
        return FederationMember(
            name=each.name,
            identity=each.identity,
            epoch=each.epoch,
            path=[own.name, *(names.get(identity, identity[:8]) for identity in path)],
            address=each.address,
            role=roles.roles[each.identity],
            cluster=names.get(roles.clusters[each.identity], ""),
        )

    others = [member(each, reversed(each.path)) for each in found if each.identity != own.identity]
    return [member(own, ()), *sorted(others, key=lambda each: (len(each.path), each.name))]


def federation_families(links: FederationLinks) -> Iterator[MetricFamily]:
    """Figures of each link."""
    view = federation_view(links)

    def of_links(name: str, kind: str, help: str, field: str, unit: str = "") -> MetricFamily:
        samples = [({"neighbour": link.neighbour}, float(getattr(link, field))) for link in view.links]
        return MetricFamily(f"lavant_link_{name}", kind, help, samples, unit)

    yield MetricFamily("lavant_federation_brokers", "gauge", "Brokers that this one knows.", [({}, len(view.members))])
    yield MetricFamily(
        "lavant_federation_moves",
        "counter",
        "Subscriptions that moved from here to another broker, and moves that were undone.",
        [({"outcome": "completed"}, links.moves.completed), ({"outcome": "undone"}, links.moves.undone)],
    )
    yield MetricFamily(
        "lavant_federation_redirects",
        "counter",
        "Requests of clients that were sent to a broker of the right role.",
        [({"to": role.value}, float(count)) for role, count in links.redirects.counts.items()],
    )
    yield MetricFamily(
        "lavant_link_state",
        "gauge",
        "1 for the state that the link is in.",
        [
            ({"neighbour": link.neighbour, "state": state}, float(link.state == state))
            for link in view.links
            for state in LINK_STATES
        ],
    )
    yield of_links("waiting", "gauge", "Publications that the neighbour has not confirmed.", "waiting")
    yield of_links("waiting_bytes", "gauge", "Their size.", "waiting_bytes", "bytes")
    yield of_links("oldest_age_seconds", "gauge", "Age of the oldest of them.", "oldest_s", "seconds")
    yield of_links("forwarded", "counter", "Publications queued for the neighbour.", "forwarded")
    yield of_links("received", "counter", "Publications that came from the neighbour.", "received")
    yield of_links("hops_max", "gauge", "The most links that a received publication has crossed.", "hops_max")
    yield of_links("subscriptions", "gauge", "Subscriptions held of the neighbour.", "subscriptions")
    yield of_links("advertisements", "gauge", "Advertisements held of the neighbour.", "advertisements")
    yield of_links("told", "gauge", "Routes that the neighbour was told.", "told")
    yield of_links("covered", "gauge", "Routes not told, because another one covers them.", "covered")
