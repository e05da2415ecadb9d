"""The model's error, over networks that nobody chose by hand. Seeds are fixed; intervals are 95 %."""

from __future__ import annotations

import numpy as np
import pytest
from tests.models.networks import fork_and_join, random_allocation, random_network

from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic
from lavant.models.prediction import predict
from lavant.simulation.queueing import simulate

NETWORKS = range(20)
JOBS = 200_000


def test_over_twenty_random_networks_the_refined_model_errs_by_less_than_three_per_cent() -> None:
    """The simulated WIP itself is known to 1.2 % on average; measured: 1.7 % refined, 2.5 % as in the paper."""
    refined, plain, known = [], [], []
    for seed in NETWORKS:
        network = random_network(seed)
        consumers = random_allocation(network, seed)
        wip = simulate(network, consumers, jobs=JOBS, seed=seed).wip
        known.append(wip.half_width / wip.mean)
        refined.append(abs(Model(network, refined=True).evaluate(consumers).wip[0] / wip.mean - 1))
        plain.append(abs(Model(network).evaluate(consumers).wip[0] / wip.mean - 1))
    assert np.mean(known) < 0.016
    assert np.mean(refined) < 0.03
    assert np.mean(refined) < np.mean(plain)
    assert np.max(refined) < 0.10


@pytest.mark.parametrize(("load", "servers"), [(0.5, 1), (0.85, 1), (3.2, 4), (9.0, 10)])
def test_markovian_stations_are_exact(load: float, servers: int) -> None:
    network = Network(
        topics=(Topic(name="A", service_rate_per_s=1.0),),
        jobs=(ModelJobType.along(["A"], name="1", arrival_rate_per_s=load),),
    )
    simulated = simulate(network, [servers], jobs=300_000, seed=servers).wip
    for refined in (False, True):
        model = float(Model(network, refined=refined).evaluate([servers]).wip[0])
        assert abs(model - simulated.mean) < 1.5 * simulated.half_width


@pytest.mark.parametrize("consumers", [(1, 2, 2, 1), (2, 2, 3, 2), (2, 3, 3, 2)])
def test_the_critical_path_of_a_fork_is_within_four_per_cent_and_the_sum_of_its_tasks_is_not(
    consumers: tuple[int, ...],
) -> None:
    network = fork_and_join()
    simulated = simulate(network, consumers, jobs=200_000, seed=1)
    job = predict(Model(network, refined=True), consumers).jobs[0]
    assert job.response_s == pytest.approx(simulated.response_s.mean, rel=0.04)
    assert job.tasks_s > 1.1 * simulated.response_s.mean
    assert job.tasks_s == pytest.approx(simulated.wip.mean, rel=0.05)  # one job a second: Little's law
