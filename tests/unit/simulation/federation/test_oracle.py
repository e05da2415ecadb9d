"""The oracle of a simulated federation: when a subscription counts as established."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lavant.broker.federation.routes.tables import RouteTable
from lavant.broker.protocol.federation import SubscribedRoute
from lavant.simulation.federation.oracle import FederationOracle


def broker(*, tells: dict[str, list[str]], knows: dict[str, list[str]]) -> Any:
    """A broker with the filters that it tells its neighbours, and those that it has heard of them."""

    def table(texts: list[str]) -> RouteTable:
        return RouteTable(SubscribedRoute("", text) for text in texts)

    outgoing = {name: SimpleNamespace(table=table(texts)) for name, texts in tells.items()}
    neighbours = {name: SimpleNamespace(routes=table(texts)) for name, texts in knows.items()}
    return SimpleNamespace(
        durable=1,
        position=1,
        machine=SimpleNamespace(router=SimpleNamespace(outgoing=outgoing)),
        broker=SimpleNamespace(federation=SimpleNamespace(neighbours=neighbours)),
    )


def established(*, told: list[str], known: list[str]) -> set[str]:
    """Where a subscription to `x > 5` at A is established, if A tells B some filters, and B knows some of A."""
    oracle = FederationOracle()
    oracle.links.add(frozenset({"A", "B"}))
    oracle.subscribed("s", "A", "x > 5")
    nodes = {"A": broker(tells={"B": told}, knows={}), "B": broker(tells={}, knows={"A": known})}
    oracle.observe(nodes)
    return oracle.subscriptions["s"].established


def test_a_covering_route_establishes_a_subscription() -> None:
    assert established(told=["x > 2"], known=["x > 2"]) == {"B"}


def test_a_route_that_has_not_arrived_establishes_nothing() -> None:
    assert established(told=["x > 5"], known=["x < 3"]) == set()


def test_a_covering_route_that_is_withdrawn_already_establishes_nothing() -> None:
    assert established(told=["x > 5"], known=["x > 2"]) == set()


def test_nothing_is_known_of_a_broker_that_is_down() -> None:
    oracle = FederationOracle()
    oracle.links.add(frozenset({"A", "B"}))
    oracle.subscribed("s", "A", "x > 5")
    oracle.observe({"A": None, "B": broker(tells={}, knows={"A": ["x > 2"]})})
    assert oracle.subscriptions["s"].established == set()
