"""Where a broker is among those that balance: its cluster, the head of that, and what the head has to know."""

from __future__ import annotations

import msgspec

from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.routes.roles import BrokerRole
from lavant.broker.federation.trace import members_of

EVERYBODY = "federation"
"""The only cluster of a federation without heads or without edges."""


class BalancingPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Edges balance within their cluster; heads balance clusters with each other, and take no subscriptions."""

    cluster: str = EVERYBODY
    head: str | None = None
    is_head: bool = False
    edges: tuple[str, ...] = ()
    """Of the own cluster."""
    heads: tuple[str, ...] = ()
    """Of the other clusters."""


def place_of(machine: FederationMachine) -> BalancingPlace:
    """The place of this broker, by the roles that it knows now."""
    roles = machine.roles
    names = {each.identity: each.name for each in (machine.own, *members_of(machine))}
    head = roles.clusters.get(machine.own.identity, "")
    if head not in names or BrokerRole.EDGE not in roles.roles.values():
        return BalancingPlace()
    edges = [
        names[identity]
        for identity, role in roles.roles.items()
        if role is not BrokerRole.HEAD and roles.clusters[identity] == head
    ]
    return BalancingPlace(
        cluster=names[head],
        head=names[head],
        is_head=roles.own is BrokerRole.HEAD,
        edges=tuple(sorted(edges)),
        heads=tuple(each.name for each in roles.heads),
    )
