"""Models and simulation of queueing networks: the case study of the allocation paper, on one core."""

from __future__ import annotations

from functools import partial

import numpy as np
from tests.bench.simulators import measure_simulators
from tests.bench.timing import best_of

from lavant.control.allocation import Budget, System, Target, min_cost, min_time
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic
from lavant.models.response_times import ResponseTimes
from lavant.simulation.queueing import NetworkSimulation
from lavant.simulation.queueing.case_study import case_study

COLUMNS = ("models: the case study, one core", "a second", "each")
ALLOCATIONS = 10_000
EVENTS_S = 200_000.0
ARRIVAL_RATE, SERVICE_RATE = 0.8, 1.0
"""Of M/M/1, a second."""


def measure_models() -> list[list[str]]:
    """A line for each figure; the best of many short runs: the machine is shared."""
    network, system = case_study(), System(network=case_study())
    consumers = np.random.default_rng(1).integers(1, 8, (ALLOCATIONS, len(network.topics)))
    lines = []
    for name, refined in (("networks evaluated, Eq. 2", False), ("networks evaluated, refined", True)):
        model = Model(network, refined=refined)
        lines.append(_line(name, ALLOCATIONS, best_of(lambda model=model: model.evaluate(consumers), 50)))  # type: ignore[misc]
    model = Model(network, refined=True)
    lines.append(
        _line("distributions of response times", 1, best_of(lambda: ResponseTimes(model, (2, 2, 1, 4)).mean_s(), 20))
    )
    lines.append(_line("plans of MinTime, 10 steps", 1, best_of(lambda: min_time(system, Budget(additional=10)), 20)))
    lines.append(_line("plans of MinCost, 5 steps", 1, best_of(lambda: min_cost(system, Target(response_s=50.0)), 20)))
    for name, simulated, allocation, length_s in (
        ("events simulated", network, [2, 2, 1, 4], EVENTS_S),
        ("M/M/1 events simulated", _mm1(), [1], EVENTS_S),
    ):
        simulate = partial(_simulate, simulated, allocation, length_s)
        lines.append(_line(name, _events(simulate()), best_of(simulate, 20)))
    lines += [_line(*measured) for measured in measure_simulators(ARRIVAL_RATE, SERVICE_RATE)]
    return lines


def _mm1() -> Network:
    job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=ARRIVAL_RATE)
    return Network(topics=(Topic(name="A", service_rate_per_s=SERVICE_RATE),), jobs=(job,))


def _simulate(network: Network, consumers: list[int], length_s: float) -> NetworkSimulation:
    run = NetworkSimulation(network, consumers, seed=1)
    run.advance(length_s)
    return run


def _events(run: NetworkSimulation) -> int:
    """Arrivals of jobs and ends of services."""
    counted = run.counters()
    return int(counted.arrived.sum() + counted.served.sum())


def _line(name: str, count: int, seconds: float) -> list[str]:
    each_us = 1e6 * seconds / count
    return [name, f"{count / seconds:,.0f}", f"{each_us:,.2f} µs" if each_us < 1000 else f"{each_us / 1000:,.2f} ms"]
