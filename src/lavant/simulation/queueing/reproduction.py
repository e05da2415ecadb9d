"""Reproduces the experiments of the allocation paper: model, refinement and simulation side by side; and its burst.

| experiment | paper |
| --- | --- |
| allocations on the path of MinTime | VI-B to VI-E, Figures 4, 6 and 7 |
| the bursty load | VI-F, Figure 8 |
| trading days | an addition |

The paper shows its results in figures only. Expected values were computed with other code of the same reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from lavant.control.allocation import (
    AllocationConfig,
    Budget,
    Consumers,
    QueueThreshold,
    System,
    Target,
    allocator_for,
    min_cost,
    min_time,
)
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic
from lavant.models.prediction import predict
from lavant.simulation.placement.load_curves import trading_day
from lavant.simulation.queueing.control import ControlledRun, run_controlled
from lavant.simulation.queueing.curves import Curve, steps
from lavant.simulation.queueing.steady import Estimate, simulate


def burst(
    *,
    quiet_per_s: Sequence[float] = (0.5 / 60, 1.0 / 60, 0.5 / 60),
    busy_per_s: Sequence[float] = (3.0 / 60, 3.5 / 60, 3.0 / 60),
    jobs: int = 300,
    quiet_share: float = 0.2,
) -> tuple[Curve, float]:
    """The bursty load of the allocation paper (Section VI-F), and its length in seconds.

    The first fifth of 300 jobs arrives at low rates, the rest at high ones. The paper counts 100 jobs of each type; so
    types would not change at the same time, and never make the load together that its result is about. Here all change
    when a fifth of all jobs is expected to have arrived.
    """
    change_s = quiet_share * jobs / sum(quiet_per_s)
    length_s = change_s + (1.0 - quiet_share) * jobs / sum(busy_per_s)
    return steps([change_s, length_s], [list(quiet_per_s), list(busy_per_s)]), length_s


def day(*, seed: int, peak_per_s: Sequence[float] = (9.0 / 60, 10.5 / 60, 9.0 / 60)) -> tuple[Curve, float]:
    """A trading day from 04:00 to 20:00 in steps of a minute, with these rates at its peak; and its length."""
    shape = trading_day(seed=seed, peak_per_s=1.0, length_s=16 * 60)
    ends_s = np.arange(60.0, 60.0 * len(shape) + 1.0, 60.0, dtype=np.float64)
    return Curve(ends_s=ends_s, rates_per_s=np.outer(shape, peak_per_s)), float(ends_s[-1])


MINUTE_S = 60.0
BUSY_PER_MINUTE = (3.0, 3.5, 3.0)
QUIET_PER_MINUTE = (0.5, 1.0, 0.5)
_TOPICS = (("A", 4.2, 0.33), ("B", 3.7, 0.5), ("C", 6.7, 0.4), ("D", 5.1, 0.5))
_JOBS = (("1", "ABD", 0.33), ("2", "ADD", 0.5), ("3", "CD", 0.25))


def case_study(rates_per_minute: Sequence[float] = BUSY_PER_MINUTE) -> Network:
    """The network under a load.

    >>> [round(load, 2) for load in case_study().offered_load]
    [1.55, 0.81, 0.45, 2.55]
    """
    return Network(
        topics=tuple(Topic(name=n, service_rate_per_s=mu / MINUTE_S, service_scv=scv) for n, mu, scv in _TOPICS),
        jobs=tuple(
            ModelJobType.along(list(route), name=name, arrival_rate_per_s=rate / MINUTE_S, arrival_scv=scv)
            for (name, route, scv), rate in zip(_JOBS, rates_per_minute, strict=True)
        ),
    )


EXPECTED = {
    (2, 1, 1, 3): (10.343, 65.32, 59.08, 0.24),
    (2, 1, 1, 4): (8.503, 53.70, 49.30, 0.16),
    (2, 2, 1, 4): (6.737, 42.55, 40.66, 0.07),
    (3, 2, 1, 4): (5.969, 37.70, 36.38, 0.03),
}
"""WIP, response, simulated response and the half-width of its 95 % interval, in seconds."""
TARGET_S = 50.0
BUDGET = 5.0
QUIET_S = 60.0
"""MinTime spends its budget when one consumer each would be slower than this; under the quiet load they take 50 s."""
START = (1, 1, 1, 1)
WINDOW_S = 60.0
JOBS = 600_000

POLICIES = {
    f"MinTime {BUDGET:g}": AllocationConfig(allocator="min-time", goal=Budget(additional=BUDGET), act_above_s=QUIET_S),
    f"Random {BUDGET:g}": AllocationConfig(allocator="random", goal=Budget(additional=BUDGET), act_above_s=QUIET_S),
    f"MinCost {TARGET_S:g} s": AllocationConfig(allocator="min-cost", goal=Target(response_s=TARGET_S)),
    f"Random {TARGET_S:g} s": AllocationConfig(allocator="random", goal=Target(response_s=TARGET_S)),
    **{
        f"threshold {requests:g}": AllocationConfig(
            allocator="threshold", threshold=QueueThreshold(requests_per_consumer=requests)
        )
        for requests in (1.75, 2.0, 5.0)
    },
}
"""Budgets are consumers on top of one each. Thresholds are requests per consumer: 5 is usual, 1.75 the cheapest that
was above the target less than a tenth of the time, on other seeds.
"""


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation, evaluated in three ways."""

    consumers: Consumers
    wip: float
    response_s: float
    response_of_job_s: tuple[float, ...]
    refined_s: float
    simulated_s: Estimate
    expected_wip: float
    expected_s: float
    expected_simulated_s: Estimate


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One policy under one kind of load: means over seeds, with 95 % intervals."""

    policy: str
    response_s: Estimate
    p95_s: Estimate
    time_above: Estimate
    """Share of minutes whose jobs took longer than the target on average."""
    consumer_hours: Estimate
    changes: float
    minutes: list[float]
    """Mean response of the jobs that arrived in each minute, over all seeds; nan where none did."""


class AllocationReproduction(msgspec.Struct, frozen=True, kw_only=True):
    """All results."""

    table: list[ComparisonRow]
    min_time_path: list[Consumers]
    min_cost: Consumers
    bursts: list[Comparison]
    days: list[Comparison]


def tasks(*, days: int) -> int:
    """How often `report` is called."""
    return len(EXPECTED) + len(POLICIES) + (len(_policies_of_days()) if days else 0)


def reproduce(*, seeds: int, days: int, report: Callable[[str], None] = lambda done: None) -> AllocationReproduction:
    """Run all experiments; `report` is told what has just been done."""
    paper = System(network=case_study(), refined=False)
    steps = min_time(paper, Budget(additional=6)).steps
    table = [_row(consumers, report) for consumers in EXPECTED]
    bursts = [_compare(name, [(burst(), seed) for seed in range(seeds)], report) for name in POLICIES]
    loads = [(day(seed=seed), seed) for seed in range(days)]
    return AllocationReproduction(
        table=table,
        min_time_path=[step.consumers for step in steps],
        min_cost=min_cost(paper, Target(response_s=TARGET_S)).consumers,
        bursts=bursts,
        days=[_compare(name, loads, report) for name in _policies_of_days()] if days else [],
    )


def _policies_of_days() -> list[str]:
    """Those without a budget: five consumers more than one each cannot serve a day's peak, wherever they are."""
    return [
        name for name, config in POLICIES.items() if config.allocator == "threshold" or isinstance(config.goal, Target)
    ]


def _row(consumers: Consumers, report: Callable[[str], None]) -> ComparisonRow:
    wip, response_s, simulated_s, half_width = EXPECTED[consumers]  # type: ignore[index]
    found = predict(Model(case_study()), consumers)
    row = ComparisonRow(
        consumers=consumers,
        wip=found.wip,
        response_s=found.response_s,
        response_of_job_s=tuple(job.response_s for job in found.jobs),
        refined_s=predict(Model(case_study(), refined=True), consumers).response_s,
        simulated_s=simulate(case_study(), consumers, jobs=JOBS, seed=3).response_s,
        expected_wip=wip,
        expected_s=response_s,
        expected_simulated_s=Estimate(simulated_s, half_width),
    )
    report(f"allocation {consumers}")
    return row


def _compare(
    policy: str, loads: Sequence[tuple[tuple[Curve, float], int]], report: Callable[[str], None]
) -> Comparison:
    system = System(network=case_study())
    runs = []
    for (curve, length_s), seed in loads:
        allocator = allocator_for(system, msgspec.structs.replace(POLICIES[policy], seed=seed))
        runs.append(run_controlled(system.network, curve, allocator, start=START, length_s=length_s, seed=seed))
    report(policy)
    return Comparison(
        policy=policy,
        response_s=_over([run.response_s for run in runs]),
        p95_s=_over([run.percentile_s(0.95) for run in runs]),
        time_above=_over([run.time_above(TARGET_S, window_s=WINDOW_S) for run in runs]),
        consumer_hours=_over([run.consumer_s / 3600 for run in runs]),
        changes=float(np.mean([len(run.decisions) for run in runs])),
        minutes=_by_minute(runs),
    )


def _by_minute(runs: Sequence[ControlledRun]) -> list[float]:
    arrivals = np.concatenate([run.finished.arrival_s for run in runs])
    minute = (arrivals // WINDOW_S).astype(np.int64)
    counts = np.bincount(minute)
    sums = np.bincount(minute, weights=np.concatenate([run.finished.response_s for run in runs]))
    means = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return [float(mean) for mean in means]


def _over(values: Sequence[float]) -> Estimate:
    """A mean over seeds, with a normal interval; none for a single seed."""
    spread = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Estimate(float(np.mean(values)), spread)
