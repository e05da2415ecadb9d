"""Input, match and output offload: what is moved, the guards, and the cases that the thesis leaves undefined."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.control.balancing.cases import broker_load, random_sample, sample_of

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.offload.input_offload import offload_input
from lavant.control.balancing.offload.match_offload import offload_match
from lavant.control.balancing.offload.output_offload import offload_output
from lavant.control.balancing.offload.report_cards import PairOffload
from lavant.control.balancing.values import BrokerLoad

CONFIG = BalancingConfig()
OFFLOADS = [offload_input, offload_match, offload_output]


def offload(ours: BrokerLoad, theirs: BrokerLoad, seed: int = 1, count: int = 400) -> PairOffload:
    sample = random_sample(seed, subscriptions=count, publications=50, rate_per_s=ours.input_rate_per_s, peers=["B2"])
    return PairOffload(ours, theirs, sample=sample, peer="B2", config=CONFIG)


def difference(pair: PairOffload, algorithm: Callable[[PairOffload], None]) -> float:
    if algorithm is offload_input:
        return pair.ours.input_utilization - pair.theirs.input_utilization
    if algorithm is offload_output:
        return pair.ours.output_utilization - pair.theirs.output_utilization
    return (pair.ours.matching_delay_s - pair.theirs.matching_delay_s) / CONFIG.delay_unit_s


@pytest.mark.parametrize("algorithm", OFFLOADS)
@pytest.mark.parametrize("seed", range(5))
def test_the_brokers_come_closer_and_nothing_moves_twice(algorithm: Callable[[PairOffload], None], seed: int) -> None:
    ours = broker_load(subscriptions=400, output=700.0)
    pair = offload(ours, broker_load(subscriptions=100, rate_per_s=5.0, output=100.0), seed)
    before = difference(pair, algorithm)
    algorithm(pair)
    chosen = pair.chosen["B2"]
    assert chosen
    assert len(set(chosen)) == len(chosen)
    assert abs(difference(pair, algorithm)) < before
    assert pair.ours.subscriptions + pair.theirs.subscriptions == 500


@pytest.mark.parametrize("algorithm", OFFLOADS)
def test_an_accepting_broker_is_never_overloaded(algorithm: Callable[[PairOffload], None]) -> None:
    theirs = broker_load(subscriptions=800, output=880.0)
    pair = offload(broker_load(subscriptions=1500, output=1900.0), theirs, count=1500)
    algorithm(pair)
    assert max(pair.theirs.input_utilization, pair.theirs.output_utilization) < CONFIG.overload_low


@pytest.mark.parametrize("algorithm", OFFLOADS)
def test_a_broker_with_nothing_to_give_gives_nothing(algorithm: Callable[[PairOffload], None]) -> None:
    empty = sample_of({}, publications=10, rate_per_s=1.0, peers={"B2": []})
    pair = PairOffload(broker_load(subscriptions=50), BrokerLoad(), sample=empty, peer="B2", config=CONFIG)
    algorithm(pair)
    assert not pair.chosen["B2"]


@pytest.mark.parametrize("algorithm", OFFLOADS)
def test_brokers_that_are_balanced_move_nothing(algorithm: Callable[[PairOffload], None]) -> None:
    load = broker_load(subscriptions=400, output=300.0)
    pair = offload(load, load)
    algorithm(pair)
    assert not pair.chosen["B2"]


def test_input_offload_takes_what_covers_others() -> None:
    vectors = {"wide": [0, 1, 2, 3], "inner": [0], "other": [4, 5, 6], "rest": [7, 8, 9], "none": []}
    sample = sample_of(vectors, publications=10, rate_per_s=10.0, peers={"B2": []})
    ours, theirs = broker_load(subscriptions=400), broker_load(subscriptions=100, rate_per_s=0.0, capacity=0.25)
    pair = PairOffload(ours, theirs, sample=sample, peer="B2", config=CONFIG)
    offload_input(pair)
    # Both delays are .04 s. From .4 and 0: "wide" leaves .28 and .16, then "inner" .24 and .16; the others are worse.
    assert pair.chosen["B2"] == ["wide", "inner"]
    assert pair.ours.input_rate_per_s == pytest.approx(6.0)


def test_input_offload_evens_out_delays_before_it_takes_what_covers_others() -> None:
    vectors = {"half": [*range(5)], "rest": [*range(5, 10)], **{f"none{n}": [] for n in range(300)}}
    sample = sample_of(vectors, publications=10, rate_per_s=10.0, peers={"B2": [*range(10)]})
    ours, theirs = broker_load(subscriptions=400), broker_load(subscriptions=200)
    pair = PairOffload(ours, theirs, sample=sample, peer="B2", config=CONFIG)
    offload_input(pair)
    assert pair.ours.input_rate_per_s == 10.0, "half of the rate times twice the delay is even too"
    assert pair.ours.matching_delay_s == pytest.approx(pair.theirs.matching_delay_s, abs=0.001)
    assert pair.ours.input_utilization == pytest.approx(pair.theirs.input_utilization, abs=0.01)


def test_match_offload_takes_subscriptions_without_traffic_first() -> None:
    pair = offload(broker_load(subscriptions=400), broker_load(subscriptions=250))
    offload_match(pair)
    sample = pair.candidates.sample
    rate = dict(zip(sample.subscriptions, sample.rate_per_s(sample.vectors).tolist(), strict=True))
    assert max(rate[name] for name in pair.chosen["B2"]) == 0.0


def test_output_offload_prefers_what_adds_no_input() -> None:
    vectors = {"covered": [0, 1, 2], "new": [3, 4, 5], **{f"rest{n}": [0, 1, 2, 3, 4, 5] for n in range(5)}}
    sample = sample_of(vectors, publications=6, rate_per_s=6.0, peers={"B2": [0, 1, 2]})
    ours = broker_load(subscriptions=7, rate_per_s=6.0, output=36.0, bandwidth=50.0)
    theirs = broker_load(subscriptions=1, rate_per_s=3.0, output=28.0, bandwidth=50.0)
    pair = PairOffload(ours, theirs, sample=sample, peer="B2", config=CONFIG)
    offload_output(pair)
    assert pair.chosen["B2"] == ["covered"]


def test_output_offload_does_not_raise_the_others_input_above_ours() -> None:
    """Figure 4.8's guard: it compares input ratios."""
    vectors = {f"s{n}": [*range(10)] for n in range(40)}
    sample = sample_of(vectors, publications=10, rate_per_s=10.0, peers={"B2": []})
    ours = broker_load(subscriptions=2000, rate_per_s=10.0, capacity=1.0, output=400.0)
    theirs = broker_load(subscriptions=4000, rate_per_s=0.0, capacity=1.0, output=0.0)
    pair = PairOffload(ours, theirs, sample=sample, peer="B2", config=CONFIG)
    offload_output(pair)
    # 4,000 subscriptions with all of the input would give .4 · 10 = 4, far above ours: nothing may move.
    assert not pair.chosen["B2"]


def test_an_input_overloaded_broker_that_cannot_give_its_broad_filters_away_gives_others() -> None:
    vectors = {"all": [*range(10)], **{f"none{n}": [] for n in range(1900)}}
    sample = sample_of(vectors, publications=10, rate_per_s=10.0, peers={"B2": []})
    ours = broker_load(subscriptions=2000, rate_per_s=10.0)
    assert ours.input_utilization > CONFIG.overload_high
    theirs = broker_load(subscriptions=100, rate_per_s=0.0, bandwidth=5.0)
    pair = PairOffload(ours, theirs, sample=sample, peer="B2", config=CONFIG)
    offload_input(pair)
    assert pair.chosen["B2"]
    assert "all" not in pair.chosen["B2"]
    assert pair.ours.input_utilization < CONFIG.overload_low


def test_input_offload_does_not_raise_the_others_output_above_ours() -> None:
    """The counterpart of Figure 4.8's guard."""
    vectors = {"all": [*range(10)], "half": [*range(5)]}
    sample = sample_of(vectors, publications=10, rate_per_s=10.0, peers={"B2": []})
    ours, theirs = broker_load(subscriptions=400, output=15.0), broker_load(subscriptions=100, rate_per_s=0.0)
    narrow = msgspec.structs.replace(theirs, bandwidth_bytes_per_s=40.0)
    pair = PairOffload(ours, narrow, sample=sample, peer="B2", config=CONFIG)
    offload_input(pair)
    assert not pair.chosen["B2"]
