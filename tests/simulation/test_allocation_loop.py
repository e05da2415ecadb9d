"""Allocators against each other in virtual time: the paper's burst over twenty seeds, and trading days.

The case study of the allocation paper, from one consumer each; a target of 50 s, or a budget of five consumers more.
None of these seeds was used to choose the allocators' defaults or the threshold's setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import msgspec
import numpy as np
import pytest
from tests.models.networks import case_study

from lavant.control.allocation import AllocationConfig, Budget, QueueThreshold, System, Target, allocator_for
from lavant.simulation.queueing.case_study import burst, day
from lavant.simulation.queueing.control import ControlledRun, LoopConfig, run_controlled

SEEDS = range(20)
DAYS = range(1)
MANY_DAYS = range(5)
TARGET_S = 50.0
START = (1, 1, 1, 1)
SYSTEM = System(network=case_study())

CONFIGS = {
    "min-time": AllocationConfig(allocator="min-time", goal=Budget(additional=5.0), act_above_s=60.0),
    "random, budget": AllocationConfig(allocator="random", goal=Budget(additional=5.0), act_above_s=60.0),
    "min-cost": AllocationConfig(allocator="min-cost", goal=Target(response_s=TARGET_S)),
    "random, target": AllocationConfig(allocator="random", goal=Target(response_s=TARGET_S)),
    "threshold": AllocationConfig(allocator="threshold", threshold=QueueThreshold(requests_per_consumer=1.75)),
    "threshold, usual": AllocationConfig(allocator="threshold"),
}


@cache
def bursts(name: str) -> Sequence[ControlledRun]:
    curve, length_s = burst()
    return [
        run_controlled(
            SYSTEM.network,
            curve,
            allocator_for(SYSTEM, msgspec.structs.replace(CONFIGS[name], seed=seed)),
            start=START,
            length_s=length_s,
            seed=seed,
        )
        for seed in SEEDS
    ]


@cache
def days(name: str, seeds: range = DAYS) -> Sequence[ControlledRun]:
    runs = []
    for seed in seeds:
        curve, length_s = day(seed=seed)
        allocator = allocator_for(SYSTEM, msgspec.structs.replace(CONFIGS[name], seed=seed))
        runs.append(run_controlled(SYSTEM.network, curve, allocator, start=START, length_s=length_s, seed=seed))
    return runs


def mean(runs: Sequence[ControlledRun], figure: Callable[[ControlledRun], float]) -> float:
    return float(np.mean([figure(run) for run in runs]))


def response(run: ControlledRun) -> float:
    return run.response_s


def cost(run: ControlledRun) -> float:
    return run.consumer_s


def above(run: ControlledRun) -> float:
    return run.time_above(TARGET_S)


def test_in_the_burst_min_time_is_many_times_as_fast_as_random_for_the_same_money() -> None:
    time, chance = bursts("min-time"), bursts("random, budget")
    assert mean(time, response) < 0.25 * mean(chance, response)
    assert mean(time, above) < 0.5 * mean(chance, above)
    assert mean(time, cost) == pytest.approx(mean(chance, cost), rel=0.05)


def test_the_burst_touches_a_small_share_of_the_jobs_under_min_time() -> None:
    """Section VI-F says about 15 %."""
    assert mean(bursts("min-time"), lambda run: run.jobs_above(90.0)) < 0.15


def test_in_the_burst_min_cost_holds_the_target_for_far_less_than_random() -> None:
    least, chance = bursts("min-cost"), bursts("random, target")
    assert mean(least, response) < TARGET_S
    assert mean(least, cost) < 0.7 * mean(chance, cost)


@pytest.mark.parametrize("runs", [bursts, days], ids=["burst", "day"])
def test_min_cost_beats_the_best_threshold_on_response_cost_and_time_above_target(
    runs: Callable[[str], Sequence[ControlledRun]],
) -> None:
    """The threshold's 1.75 requests a consumer was chosen as the cheapest that is above target less than a tenth of the
    time, on other seeds; min-cost was only told the target."""
    ours, theirs = runs("min-cost"), runs("threshold")
    assert mean(ours, response) < mean(theirs, response)
    assert mean(ours, cost) < mean(theirs, cost)
    assert mean(ours, above) < mean(theirs, above)
    assert mean(ours, lambda run: len(run.decisions)) < 1.1 * mean(theirs, lambda run: len(run.decisions))


def test_a_threshold_that_nobody_tuned_misses_the_target_most_of_the_time() -> None:
    assert mean(bursts("threshold, usual"), above) > 0.5
    assert mean(bursts("threshold, usual"), response) > TARGET_S


def test_all_jobs_are_done_and_none_twice_whatever_the_allocator_does() -> None:
    for name in CONFIGS:
        for run in bursts(name)[:3]:
            assert len(run.finished.job) > 200
            assert len(np.unique(run.finished.arrival_s)) == len(run.finished.arrival_s)


def test_consumers_serve_only_after_their_start() -> None:
    """With a start that takes the whole burst, allocation cannot help: it is as if nobody had decided anything."""
    curve, length_s = burst()
    config = LoopConfig(start_s=2 * length_s)
    allocator = allocator_for(SYSTEM, CONFIGS["min-cost"])
    late = run_controlled(SYSTEM.network, curve, allocator, start=START, length_s=length_s, seed=1, config=config)
    soon = bursts("min-cost")[1]
    assert late.response_s > 5 * soon.response_s
    assert late.consumer_s >= soon.consumer_s


def test_the_same_seed_gives_the_same_run() -> None:
    curve, length_s = burst()
    allocator = allocator_for(SYSTEM, CONFIGS["min-cost"])
    again = run_controlled(SYSTEM.network, curve, allocator, start=START, length_s=length_s, seed=0)
    first = bursts("min-cost")[0]
    assert again.consumers == first.consumers
    assert np.array_equal(again.finished.response_s, first.finished.response_s)


@pytest.mark.soak
def test_over_many_days_min_cost_beats_every_threshold_at_its_own_cost() -> None:
    """Each threshold is matched: where it is cheaper it is slower and longer above the target, by far."""
    ours = days("min-cost", MANY_DAYS)
    for requests in (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0):
        CONFIGS[f"threshold {requests}"] = AllocationConfig(
            allocator="threshold", threshold=QueueThreshold(requests_per_consumer=requests)
        )
        theirs = days(f"threshold {requests}", MANY_DAYS)
        assert mean(ours, cost) < mean(theirs, cost) or mean(ours, above) < 0.7 * mean(theirs, above)
