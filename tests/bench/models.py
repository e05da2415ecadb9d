"""Models and simulation of queueing networks: the case study of the allocation paper, on one core."""

from __future__ import annotations

import numpy as np
from tests.bench.timing import best_of

from lavant.control.allocation import Budget, System, Target, min_cost, min_time
from lavant.models.evaluation import Model
from lavant.models.response_times import ResponseTimes
from lavant.simulation.queueing import NetworkSimulation
from lavant.simulation.queueing.reproduction import case_study

COLUMNS = ("models: the case study, one core", "a second", "each")
ALLOCATIONS = 10_000
EVENTS_S = 200_000.0


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
    lines.append(_line("events simulated", _events(), best_of(_simulate, 20)))
    return lines


def _simulate() -> NetworkSimulation:
    run = NetworkSimulation(case_study(), (2, 2, 1, 4), seed=1)
    run.advance(EVENTS_S)
    return run


def _events() -> int:
    """Arrivals of jobs and ends of services."""
    counted = _simulate().counters()
    return int(counted.arrived.sum() + counted.served.sum())


def _line(name: str, count: int, seconds: float) -> list[str]:
    each_us = 1e6 * seconds / count
    return [name, f"{count / seconds:,.0f}", f"{each_us:,.2f} µs" if each_us < 1000 else f"{each_us / 1000:,.2f} ms"]
