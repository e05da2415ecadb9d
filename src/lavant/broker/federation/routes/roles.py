"""Roles of brokers (PEER): which are cluster heads, which are edges, and where clients belong.

Section 3.2 of the balancing thesis. Heads have more than one neighbour, edges have one. A head and its edges are a
cluster. Publishers belong to heads, subscribers to edges. With one or two brokers there are no roles: every broker
serves everybody. All brokers know the whole tree, so each derives the same roles, and they change as brokers join and
leave. A broker whose role was set by its operator keeps it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from lavant.broker.protocol.federation import BrokerMember

BROKERS_MIN = 3
"""With fewer, brokers that choose their role by themselves serve everybody."""


class BrokerRole(enum.StrEnum):
    """What a broker does, or `AUTO` as its setting: it follows from its neighbours."""

    AUTO = "auto"
    ANY = "any"
    HEAD = "head"
    EDGE = "edge"


class FederationRoles(msgspec.Struct, frozen=True, kw_only=True):
    """The roles of all brokers, as one of them sees them."""

    own: BrokerRole
    roles: dict[str, BrokerRole]
    """By identity."""
    clusters: dict[str, str]
    """By identity of a broker: the identity of the head of its cluster; empty if there is no head."""
    heads: list[BrokerMember]
    """Other brokers that are heads, the nearest first."""
    edges: list[list[BrokerMember]]
    """Other brokers that are edges: those of the own cluster first, then the others by distance."""


def roles_of(own: BrokerMember, behind: Iterable[Mapping[bytes, BrokerMember]]) -> FederationRoles:
    """Derive all roles from who is behind the links of this broker.

    >>> chain = [BrokerMember(i, i, 1, 1, p, role="auto") for i, p in (("a", ["a"]), ("b", ["b"]), ("c", ["c", "b"]))]
    >>> [role.value for role in roles_of(chain[0], [dict(enumerate(chain[1:]))]).roles.values()]
    ['edge', 'head', 'edge']
    """
    members = {each.identity: each for known in behind for each in known.values() if each.identity != own.identity}
    tree = _tree(own.identity, members.values())
    roles = {each.identity: _role(each, len(tree[each.identity]), len(tree)) for each in (own, *members.values())}
    clusters = _clusters(tree, [identity for identity, role in roles.items() if role is BrokerRole.HEAD])
    near = sorted(members.values(), key=lambda each: (len(each.path), each.identity))
    by_distance: dict[int, list[BrokerMember]] = {}
    for each in near:
        if roles[each.identity] is BrokerRole.EDGE:
            is_own = clusters[each.identity] == own.identity
            by_distance.setdefault(0 if is_own else len(each.path), []).append(each)
    return FederationRoles(
        own=roles[own.identity],
        roles=roles,
        clusters=clusters,
        heads=[each for each in near if roles[each.identity] is BrokerRole.HEAD],
        edges=[by_distance[distance] for distance in sorted(by_distance)],
    )


def edge_for(namespace: str, name: str, edges: list[BrokerMember]) -> BrokerMember:
    """The edge for a new subscription, as if it were chosen at random.

    It depends on the name (rendezvous hashing), so that brokers which do not know the subscription choose the same one,
    and an edge that joins or leaves changes the choice for few names.
    """
    return max(edges, key=lambda each: blake2b(f"{namespace}\0{name}\0{each.identity}".encode()).digest())


def _tree(own: str, members: Iterable[BrokerMember]) -> dict[str, set[str]]:
    """The neighbours of each broker."""
    tree: dict[str, set[str]] = {own: set()}
    for member in members:
        for one, other in zip(member.path, [*member.path[1:], own], strict=True):
            tree.setdefault(one, set()).add(other)
            tree.setdefault(other, set()).add(one)
    return tree


def _role(member: BrokerMember, neighbours: int, brokers: int) -> BrokerRole:
    if member.role in (BrokerRole.HEAD, BrokerRole.EDGE):
        return BrokerRole(member.role)
    if member.role != BrokerRole.AUTO or brokers < BROKERS_MIN:
        return BrokerRole.ANY
    return BrokerRole.HEAD if neighbours > 1 else BrokerRole.EDGE


def _clusters(tree: dict[str, set[str]], heads: list[str]) -> dict[str, str]:
    """The nearest head of each broker; of several, the one with the smallest identity."""
    found = dict.fromkeys(tree, "")
    found.update((head, head) for head in heads)
    waiting = deque(sorted(heads))
    while waiting:
        broker = waiting.popleft()
        for neighbour in sorted(tree[broker]):
            if not found[neighbour]:
                found[neighbour] = found[broker]
                waiting.append(neighbour)
    return found
