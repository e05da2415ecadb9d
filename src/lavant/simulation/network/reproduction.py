"""The experiments of the allocation paper, run again: model, refinement and simulation side by side; and its burst.

| experiment | paper |
| --- | --- |
| allocations on the path of MinTime | VI-B to VI-E, Figures 4, 6 and 7 |
| the bursty load | VI-F, Figure 8 |
| trading days | an addition |

The paper shows its results in figures only. What is expected here was computed with other code, of the same readings.
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
from lavant.models.prediction import predict
from lavant.simulation.network.case_study import case_study
from lavant.simulation.network.control import ControlledRun, run_controlled
from lavant.simulation.network.curves import Curve
from lavant.simulation.network.steady import Estimate, simulate
from lavant.simulation.network.workloads import burst, day

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
"""Budgets are consumers on top of one each. Thresholds are requests a consumer: 5 is usual, 1.75 the cheapest that was
above the target less than a tenth of the time, on other seeds."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation, three ways."""

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


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    table: list[Row]
    min_time_path: list[Consumers]
    min_cost: Consumers
    bursts: list[Comparison]
    days: list[Comparison]


def tasks(*, days: int) -> int:
    """How often `report` is called."""
    return len(EXPECTED) + len(POLICIES) + (len(_policies_of_days()) if days else 0)


def reproduce(*, seeds: int, days: int, report: Callable[[str], None] = lambda done: None) -> Reproduction:
    """Run all of it; `report` is told what has just been done."""
    paper = System(network=case_study(), refined=False)
    steps = min_time(paper, Budget(additional=6)).steps
    table = [_row(consumers, report) for consumers in EXPECTED]
    bursts = [_compare(name, [(burst(), seed) for seed in range(seeds)], report) for name in POLICIES]
    loads = [(day(seed=seed), seed) for seed in range(days)]
    return Reproduction(
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


def _row(consumers: Consumers, report: Callable[[str], None]) -> Row:
    wip, response_s, simulated_s, half_width = EXPECTED[consumers]  # type: ignore[index]
    found = predict(Model(case_study()), consumers)
    row = Row(
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
    """A mean over seeds; the interval is the normal one, and none for a single seed."""
    spread = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Estimate(float(np.mean(values)), spread)
