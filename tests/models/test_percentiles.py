"""Predicted percentiles of response times against simulated ones. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.models.networks import case_study, fork_and_join, random_allocation, random_network

from lavant.control.allocation import System, Target, min_cost
from lavant.models.evaluation import Model
from lavant.models.layout import Floats
from lavant.models.network import Network
from lavant.models.response_times import ResponseTimes
from lavant.simulation.queueing import NetworkSimulation


def simulated_responses(network: Network, consumers: tuple[int, ...], *, jobs: int = 100_000, seed: int = 1) -> Floats:
    run = NetworkSimulation(network, consumers, seed=seed, record=True)
    length_s = jobs / network.arrival_rate_per_s
    run.advance(0.1 * length_s)
    run.take_finished()
    run.advance(length_s)
    return run.take_finished().response_s


CASES = {
    "case study": (case_study(), (2, 2, 1, 4)),
    "case study with more": (case_study(), (3, 2, 1, 4)),
    "fork and join": (fork_and_join(), (2, 3, 3, 2)),
    **{f"random {s}": (random_network(s), tuple(random_allocation(random_network(s), s))) for s in range(12)},
}


def test_percentiles_err_by_less_than_six_per_cent_on_average_and_eighteen_at_worst() -> None:
    """100,000 jobs leave a simulated p95 uncertain by about 1 %. Measured: p95 3.0 and 10.4 %, p99 4.8 and 15.9 %."""
    errors = []
    for network, consumers in CASES.values():
        times = ResponseTimes(Model(network, refined=True), consumers)
        simulated = simulated_responses(network, consumers)
        errors.append([times.percentile_s(q) / np.quantile(simulated, q) - 1 for q in (0.5, 0.9, 0.95, 0.99)])
    assert np.abs(errors).mean(axis=0).max() < 0.06, np.abs(errors).mean(axis=0)
    assert np.abs(errors).max() < 0.18, np.abs(errors).max(axis=0)


def test_the_means_are_those_of_the_model() -> None:
    model = Model(case_study(), refined=True)
    times = ResponseTimes(model, (2, 2, 1, 4))
    assert times.mean_s() == pytest.approx(float(model.evaluate([2, 2, 1, 4]).response_s[0]), rel=1e-9)


@pytest.mark.parametrize("percentile", [0.9, 0.95, 0.99])
def test_a_percentile_target_holds_in_simulation_at_a_cost_that_is_least_or_one_above(percentile: float) -> None:
    """With any one consumer less the target is missed, or held by less than the model's error."""
    system, target = System(network=case_study()), Target(response_s=90.0, percentile=percentile)
    plan = min_cost(system, target)
    found = simulated_responses(system.network, plan.consumers)
    assert np.quantile(found, percentile) <= target.response_s * 1.02
    for j, m in enumerate(plan.consumers):
        fewer = (*plan.consumers[:j], m - 1, *plan.consumers[j + 1 :])
        if m > 1 and all(load < n for load, n in zip(system.network.offered_load, fewer, strict=True)):
            assert np.quantile(simulated_responses(system.network, fewer), percentile) > 0.94 * target.response_s
