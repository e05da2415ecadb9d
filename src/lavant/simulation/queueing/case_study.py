"""The case study of the allocation paper, its burst, and the policies that are compared under it.

Also trading days, which are an addition. The figures are in `figures.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

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
)
from lavant.models.network import ModelJobType, Network, Topic
from lavant.simulation.placement.load_curves import trading_day
from lavant.simulation.queueing.control import ControlledRun, run_controlled
from lavant.simulation.queueing.curves import Curve, steps
from lavant.simulation.queueing.steady import Estimate


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


TARGET_S = 50.0
BUDGET = 5.0
QUIET_S = 60.0
"""MinTime spends its budget when one consumer each would be slower than this; under the quiet load they take 50 s."""
START = (1, 1, 1, 1)
WINDOW_S = 60.0

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


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One policy under one kind of load: means over seeds, with 95 % intervals."""

    policy: str
    response_s: Estimate
    p95_s: Estimate
    time_above: Estimate
    """Share of minutes whose jobs took longer than the target on average."""
    jobs_affected: Estimate
    """Share of jobs that arrived in such minutes."""
    consumer_hours: Estimate
    final: list[Consumers]
    """The last allocation of each run."""
    changes: float
    minutes: list[float]
    """Mean response of the jobs that arrived in each minute, over all seeds; nan where none did."""


def compare(policy: str, loads: Sequence[tuple[tuple[Curve, float], int]]) -> Comparison:
    """One policy under these loads, each with its seed."""
    system = System(network=case_study())
    runs = []
    for (curve, length_s), seed in loads:
        allocator = allocator_for(system, msgspec.structs.replace(POLICIES[policy], seed=seed))
        runs.append(run_controlled(system.network, curve, allocator, start=START, length_s=length_s, seed=seed))
    return Comparison(
        policy=policy,
        response_s=_over([run.response_s for run in runs]),
        p95_s=_over([run.percentile_s(0.95) for run in runs]),
        time_above=_over([run.time_above(TARGET_S, window_s=WINDOW_S) for run in runs]),
        jobs_affected=_over([_affected(run) for run in runs]),
        consumer_hours=_over([run.consumer_s / 3600 for run in runs]),
        final=[run.consumers[-1] for run in runs],
        changes=float(np.mean([len(run.decisions) for run in runs])),
        minutes=_by_minute(runs),
    )


def _affected(run: ControlledRun) -> float:
    minute = (run.finished.arrival_s // WINDOW_S).astype(np.int64)
    counts = np.bincount(minute)
    sums = np.bincount(minute, weights=run.finished.response_s)
    return float(counts[sums > TARGET_S * counts].sum() / counts.sum())


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
