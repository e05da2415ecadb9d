"""What holds for every policy, and the shares of the default one."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.balancing.cases import broker_load, random_sample, sample_of

from lavant.control.balancing.policies.interface import BalancingPolicy, Neighbourhood, OpenSession
from lavant.control.balancing.policies.registry import POLICIES, balancing_policy
from lavant.control.balancing.policies.share_plan import _fill
from lavant.control.balancing.values import BalancingStatus, BrokerLoad, LoadIndex, LoadReport
from lavant.core.errors import InvalidValue


def neighbourhood(policy: BalancingPolicy, load: BrokerLoad, peers: dict[str, BrokerLoad]) -> Neighbourhood:
    reports = {
        name: LoadReport(broker=name, cluster="C", status=BalancingStatus.OK, load=each) for name, each in peers.items()
    }
    return Neighbourhood(broker="B1", status=BalancingStatus.OK, load=load, peers=reports, config=policy.config)


@pytest.mark.parametrize("name", POLICIES)
def test_an_overloaded_broker_looks_for_others_and_a_balanced_one_does_not(name: str) -> None:
    policy = POLICIES[name]
    heavy, light = broker_load(subscriptions=1000, rate_per_s=20.0), broker_load(subscriptions=10)
    proposals = policy.propose(neighbourhood(policy, heavy, {"B2": light, "B3": light}))
    assert {peer for proposal in proposals for peer in proposal.peers} == {"B2", "B3"}
    assert all(proposal.reason for proposal in proposals)
    assert policy.propose(neighbourhood(policy, light, {"B2": light})) == []
    assert policy.propose(neighbourhood(policy, heavy, {})) == []


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_moves_each_subscription_once_and_predicts_every_broker(name: str, seed: int) -> None:
    policy = POLICIES[name]
    peers = {"B2": broker_load(subscriptions=100, capacity=2.0)}
    if policy.name != "thesis":
        peers["B3"] = broker_load(subscriptions=10, capacity=4.0)
    sample = random_sample(seed, subscriptions=600, publications=50, rate_per_s=10.0, peers=list(peers))
    load = broker_load(subscriptions=600, output=500.0)
    session = OpenSession(
        broker="B1", index=LoadIndex.INPUT, load=load, peers=peers, sample=sample, config=policy.config
    )
    plan = policy.plan(session)
    names = [move.subscription for move in plan.moves]
    assert names
    assert len(set(names)) == len(names)
    assert {move.destination for move in plan.moves} <= set(peers)
    assert set(plan.predicted) == {"B1", *peers}
    total = sum(each.subscriptions for each in plan.predicted.values())
    assert total == sum(each.subscriptions for each in (load, *peers.values()))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("index", [LoadIndex.INPUT, LoadIndex.MATCH])
@pytest.mark.parametrize("traffic", [0.0, 0.05])
@pytest.mark.parametrize(
    "peer",
    [
        BrokerLoad(input_rate_per_s=20.0),
        BrokerLoad(input_rate_per_s=20.0, matching_delay_slope_s=0.0),
        BrokerLoad(subscriptions=10, input_rate_per_s=20.0, matching_delay_s=0.0002, matching_delay_slope_s=0.0),
    ],
    ids=["nothing measured", "empty", "nearly empty"],
)
def test_a_broker_whose_delay_says_nothing_yet_does_not_get_everything(
    name: str, index: LoadIndex, traffic: float, peer: BrokerLoad
) -> None:
    policy, random = POLICIES[name], np.random.default_rng(0)
    bandwidth = 12.5e6
    load = BrokerLoad(
        subscriptions=200,
        input_rate_per_s=20.0,
        matching_delay_s=0.02,
        output_bytes_per_s=200 * traffic * 20.0 * 100,
        bandwidth_bytes_per_s=bandwidth,
    )
    rows = {f"s{row}": np.flatnonzero(random.random(100) < traffic).tolist() for row in range(200)}
    sample = sample_of(rows, publications=100, rate_per_s=20.0, peers={"B2": []})
    session = OpenSession(
        broker="B1",
        index=index,
        load=load,
        peers={"B2": msgspec.structs.replace(peer, bandwidth_bytes_per_s=bandwidth)},
        sample=msgspec.structs.replace(sample, publication_bytes=100.0),
        config=policy.config,
    )
    plan = policy.plan(session)
    assert 60 <= len(plan.moves) <= 140
    assert plan.predicted["B2"].matching_delay_s == pytest.approx(plan.predicted["B1"].matching_delay_s, abs=0.006)


@pytest.mark.parametrize("capacities", [(1, 2, 4, 10), (1, 1, 1), (1, 50), (5, 1, 250)])
def test_shares_follow_capacities(capacities: tuple[float, ...]) -> None:
    own, *others = capacities
    names = [f"B{number}" for number in range(2, len(capacities) + 1)]
    sample = random_sample(7, subscriptions=2000, publications=50, rate_per_s=10.0, peers=names)
    output = float(sample.rate_per_s(sample.vectors).sum())
    load = broker_load(subscriptions=2000, capacity=own, output=output, bandwidth=10_000.0)
    peers = {
        name: broker_load(
            subscriptions=0,
            capacity=each,
            bandwidth=10_000.0,
            rate_per_s=float(sample.rate_per_s(sample.peers[name])),
        )
        for name, each in zip(names, others, strict=True)
    }
    policy = balancing_policy("shares")
    session = OpenSession(
        broker="B1", index=LoadIndex.SHARES, load=load, peers=peers, sample=sample, config=policy.config
    )
    plan = policy.plan(session)
    delays = [each.matching_delay_s for each in plan.predicted.values()]
    assert max(delays) - min(delays) < 0.1 * policy.config.delay_threshold * policy.config.delay_unit_s
    outputs = [each.output_utilization for each in plan.predicted.values()]
    assert max(outputs) - min(outputs) < 0.02
    inputs = [each.input_utilization for each in plan.predicted.values()]
    assert max(inputs) - min(inputs) < 0.02
    staying = 2000 - len(plan.moves)
    assert staying == pytest.approx(2000 * own / sum(capacities), rel=0.1, abs=3)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 10)), min_size=1, max_size=6),
    st.floats(0, 1000),
)
def test_filling_gives_out_everything_and_levels_those_that_take(
    brokers: list[tuple[float, float]], amount: float
) -> None:
    weights = np.array([weight for weight, _ in brokers])
    levels = np.array([level for _, level in brokers])
    levels[0] += amount / weights[0]
    given_out = _fill(weights, levels, amount)
    assert float(given_out.sum()) == pytest.approx(amount, abs=1e-6)
    assert (given_out >= -1e-9).all()
    start = levels.copy()
    start[0] -= amount / weights[0]
    after = start + given_out / weights
    takers = given_out > 1e-6
    if takers.any():
        level = after[takers].max()
        assert after[takers].min() == pytest.approx(level, abs=1e-6)
        assert (after[~takers] >= level - 1e-6).all()


def test_a_policy_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidValue, match="no balancing policy 'best'; choose one of even-counts, shares, thesis"):
        balancing_policy("best")


def test_the_thesis_defers_to_an_overloaded_peer_but_not_for_ever() -> None:
    policy = balancing_policy("thesis")
    heavy, light = broker_load(subscriptions=900), broker_load(subscriptions=100)
    view = neighbourhood(policy, heavy, {"B2": light, "B3": light})
    assert policy.propose(view)
    reports = dict(view.peers)
    reports["B3"] = LoadReport(broker="B3", cluster="C", status=BalancingStatus.NOT_AVAILABLE, load=light)

    def waited(ms: int) -> Neighbourhood:
        return Neighbourhood(
            broker="B1", status=BalancingStatus.OK, load=heavy, peers=reports, config=policy.config, waited_ms=ms
        )

    assert policy.propose(waited(0)) == []
    assert policy.propose(waited(policy.config.deferral_ms_max))[0].peers == ("B2",)


@pytest.mark.parametrize("name", ["shares", "thesis"])
def test_a_broker_that_would_refuse_is_not_asked(name: str) -> None:
    policy = balancing_policy(name)
    heavy, light = broker_load(subscriptions=1000, rate_per_s=20.0), broker_load(subscriptions=10)
    view = neighbourhood(policy, heavy, {"B2": light, "B3": light})
    for status in (BalancingStatus.BUSY, BalancingStatus.STABILIZING, BalancingStatus.NOT_AVAILABLE):
        peers = {**view.peers, "B2": msgspec.structs.replace(view.peers["B2"], status=status)}
        proposals = policy.propose(msgspec.structs.replace(view, peers=peers))
        assert {peer for proposal in proposals for peer in proposal.peers} == {"B3"}


def test_shares_waits_for_a_while_until_all_with_less_load_have_settled_unless_it_is_overloaded() -> None:
    policy = balancing_policy("shares")
    light = broker_load(subscriptions=10)

    def asked(load: BrokerLoad, unsettled_ms: int) -> list[tuple[str, ...]]:
        view = neighbourhood(policy, load, {"B2": light, "B3": light})
        settling = msgspec.structs.replace(view.peers["B2"], status=BalancingStatus.STABILIZING)
        view = msgspec.structs.replace(view, peers={**view.peers, "B2": settling}, unsettled_ms=unsettled_ms)
        return [proposal.peers for proposal in policy.propose(view)]

    uneven = broker_load(subscriptions=300)
    assert asked(uneven, 1000) == []
    assert asked(uneven, policy.config.stable_ms_max) == [("B3",)]
    assert asked(broker_load(subscriptions=1000, rate_per_s=20.0), 1000) == [("B3",)]
