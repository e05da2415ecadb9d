"""What every allocator promises, checked on every one there is."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from tests.models.networks import case_study

from lavant.control.allocation import (
    ALLOCATORS,
    AllocationConfig,
    AllocationPlan,
    Allocator,
    Budget,
    Goal,
    Limits,
    ObservedLoad,
    System,
    Target,
    allocator_for,
)
from lavant.core.decisions import Decision
from lavant.core.errors import InvalidValue

SYSTEM = System(network=case_study(), limits=(Limits(least=1, most=9),) * 3 + (Limits(least=2, most=7),))
GOALS: dict[str, Goal] = {"min-time": Budget(additional=6.0)}
TARGET = Target(response_s=50.0)


@pytest.fixture(params=sorted(ALLOCATORS))
def config(request: pytest.FixtureRequest) -> AllocationConfig:
    return AllocationConfig(allocator=request.param, goal=GOALS.get(request.param, TARGET), seed=3)


def looks(seed: int, count: int) -> list[tuple[ObservedLoad, int]]:
    """A random load that comes and goes, with queues that follow it."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        height = 2.0 * math.sin(number / 7) ** 2
        rates = random.poisson(6 * height, 3) / 120
        requests = random.poisson(4 * height, 4)
        found.append(
            (
                ObservedLoad(
                    consumers=tuple(random.integers(1, 7, 4).tolist()),
                    arrival_rates_per_s=tuple(rates.tolist()),
                    requests=tuple(map(float, requests)),
                    window_s=120.0,
                ),
                15_000 * (number + 1),
            )
        )
    return found


def plans(config: AllocationConfig, seed: int, count: int = 60) -> list[AllocationPlan]:
    allocator = allocator_for(SYSTEM, config)
    return [allocator.decide(observed, now_ms) for observed, now_ms in looks(seed, count)]


@pytest.mark.parametrize("seed", range(3))
def test_plans_stay_within_the_limits(config: AllocationConfig, seed: int) -> None:
    for plan in plans(config, seed):
        assert len(plan.consumers) == 4
        for m, low, high in zip(plan.consumers, SYSTEM.least, SYSTEM.most, strict=True):
            assert low <= m <= high


def test_the_same_observations_give_the_same_plans(config: AllocationConfig) -> None:
    assert plans(config, 5) == plans(config, 5)


def test_a_decision_explains_itself_with_figures_and_its_time(config: AllocationConfig) -> None:
    for plan, (_, now_ms) in zip(plans(config, 7), looks(7, 60), strict=True):
        assert isinstance(plan.decision, Decision)
        assert plan.decision.loop == "allocation"
        assert plan.decision.reason
        assert plan.decision.figures
        assert plan.decision.time_ms == now_ms
        for step in plan.steps:
            assert step.decision.reason
            assert step.decision.figures["cost"] == pytest.approx(SYSTEM.cost(step.consumers))


def test_the_last_step_is_the_plan_unless_hysteresis_holds_more(config: AllocationConfig) -> None:
    for plan in plans(config, 11):
        if plan.steps:
            assert all(map(int.__ge__, plan.consumers, plan.steps[-1].consumers))


def test_no_load_needs_the_least_allocation_at_last(config: AllocationConfig) -> None:
    config = msgspec.structs.replace(config, act_above_s=1_000.0)
    allocator = allocator_for(SYSTEM, config)
    busy, _ = looks(1, 20)[10]
    allocator.decide(busy, 0)
    consumers = busy.consumers
    for now_ms in range(15_000, 700_000, 15_000):
        calm = ObservedLoad(consumers=consumers, arrival_rates_per_s=(0.0,) * 3, requests=(0.0,) * 4, window_s=120.0)
        consumers = allocator.decide(calm, now_ms).consumers
    assert consumers == SYSTEM.least


def test_what_a_load_needs_is_not_taken_away_for_a_moment_without_load(config: AllocationConfig) -> None:
    allocator = allocator_for(SYSTEM, msgspec.structs.replace(config, act_above_s=55.0))
    busy = ObservedLoad(
        consumers=(2, 2, 1, 4), arrival_rates_per_s=(0.05, 0.058, 0.05), requests=(9.0, 8.0, 3.0, 20.0), window_s=120.0
    )
    given = allocator.decide(busy, 0).consumers
    calm = ObservedLoad(consumers=given, arrival_rates_per_s=(0.001,) * 3, requests=(0.0,) * 4, window_s=120.0)
    assert sum(allocator.decide(calm, 30_000).consumers) >= sum(given)


def test_it_is_an_allocator(config: AllocationConfig) -> None:
    allocator: Allocator = allocator_for(SYSTEM, config)
    assert allocator.name == config.allocator


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidValue, match="no allocator 'magic'; there are min-cost, min-time, random, threshold"):
        allocator_for(SYSTEM, AllocationConfig(allocator="magic"))
