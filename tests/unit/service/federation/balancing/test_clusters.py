"""Heads and edges: edges balance within their cluster, heads let two clusters balance, and heads take nothing."""

from __future__ import annotations

import pytest
from tests.unit.service.federation.balancing.balanced_network import BalancedNetwork
from tests.unit.service.federation.balancing.test_balancer import in_loop, places

from lavant.broker.federation.routes.roles import BrokerRole
from lavant.broker.protocol.subscriptions import Advertise, Subscribe
from lavant.service.federation.balancing.places import BalancingPlace, place_of

SUBSCRIPTIONS = 16


async def clusters() -> BalancedNetwork:
    """Two heads; all subscriptions are at the first of the two edges of H1, and H2 has one edge."""
    network = BalancedNetwork()
    for name, neighbour in (("H1", ""), ("H2", "H1"), ("E1", "H1"), ("E2", "H1"), ("E3", "H2"), ("E4", "H2")):
        network.add(name, requires_advertisements=True, role=BrokerRole.AUTO)
        if neighbour:
            network.join(name, neighbour)
            network.settle()
    network.request("H1", Advertise("true", "all"))
    for name in network.brokers:
        network.balance(name, rate=1000, bandwidth=5000)
    await network.second()
    for number in range(SUBSCRIPTIONS):
        network.request("E1", Subscribe(f"x >= {number % 4} and x < {number % 4 + 2}", f"s{number}"))
    return network


async def run(network: BalancedNetwork, seconds: int) -> None:
    for _ in range(seconds):
        for x in range(4):
            network.publish("H1", {"x": x})
        await network.second()


@in_loop
async def test_a_cluster_balances_by_itself_and_its_head_takes_nothing() -> None:
    network = await clusters()
    await run(network, 45)
    assert places(network) == {"H1": 0, "H2": 0, "E1": 8, "E2": 8, "E3": 0, "E4": 0}
    assert {name: each.fault for name, each in network.balancers.items()} == dict.fromkeys(network.brokers)
    assert set(network.balancers["E1"].machine.peers) == {"E2"}
    assert set(network.balancers["E3"].machine.peers) == {"E4"}


@in_loop
async def test_every_broker_knows_its_place_and_follows_changes() -> None:
    network = await clusters()
    assert network.balancers["E3"].place == BalancingPlace(
        cluster="H2", head="H2", edges=("E3", "E4"), heads=("H2", "H1")
    )
    assert network.balancers["H1"].place == BalancingPlace(
        cluster="H1", head="H1", is_head=True, edges=("E1", "E2"), heads=("H2",)
    )
    alone = BalancedNetwork()
    alone.add("B1", role=BrokerRole.AUTO)
    assert place_of(alone.brokers["B1"].node.machine) == BalancingPlace()


@pytest.mark.soak
@in_loop
async def test_clusters_balance_with_each_other() -> None:
    network = await clusters()
    await run(network, 600)
    found = places(network)
    assert (found["H1"], found["H2"]) == (0, 0)
    assert all(3 <= found[edge] <= 5 for edge in ("E1", "E2", "E3", "E4")), found
    heads = [each.cluster for each in network.balancers.values() if each.cluster is not None]
    assert len(heads) == 2
    assert sum(each.sessions for each in heads) >= 1
