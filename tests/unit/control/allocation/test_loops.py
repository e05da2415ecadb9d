"""Allocators as loops: hysteresis, caution, quiet times, queue thresholds."""

from __future__ import annotations

import pytest
from tests.models.networks import case_study

from lavant.control.allocation import (
    AllocationConfig,
    Budget,
    Caution,
    Hysteresis,
    Limits,
    ObservedLoad,
    QueueThreshold,
    System,
    Target,
    allocator_for,
)
from lavant.control.allocation.policies.interface import expected
from lavant.core.errors import InvalidValue

CASE = System(network=case_study())
BUSY, CALM = (3.0 / 60, 3.5 / 60, 3.0 / 60), (0.5 / 60, 1.0 / 60, 0.5 / 60)
EMPTY = (0.0, 0.0, 0.0, 0.0)


def seen(
    rates: tuple[float, ...], consumers: tuple[int, ...] = (1, 1, 1, 1), requests: tuple[float, ...] = EMPTY
) -> ObservedLoad:
    return ObservedLoad(consumers=consumers, arrival_rates_per_s=rates, requests=requests, window_s=120.0)


def test_min_cost_gives_at_once_and_takes_away_after_the_window() -> None:
    config = AllocationConfig(goal=Target(response_s=50.0), hysteresis=Hysteresis(scale_in_ms=60_000))
    allocator = allocator_for(CASE, config)
    busy = allocator.decide(seen(BUSY), 0).consumers
    assert busy == (2, 2, 1, 4)
    held = allocator.decide(seen(CALM, busy), 60_000)
    assert held.consumers == busy
    assert "more was needed a short while ago" in held.decision.reason
    assert sum(allocator.decide(seen(CALM, busy), 60_001).consumers) < sum(busy)


def test_what_waits_is_worked_off_in_time() -> None:
    """40 requests at D, 4 of them in service: 36 / (5.1/60 · 30 s) = 14.1, and 2.55 for what arrives: 17."""
    waiting = seen(BUSY, (2, 2, 1, 4), (0.0, 0.0, 0.0, 40.0))
    assert expected(CASE, waiting, Caution(drain_s=30.0)).least == (1, 1, 1, 17)
    assert expected(CASE, waiting, Caution(drain_s=None)).least == (1, 1, 1, 1)
    capped = System(network=case_study(), limits=(Limits(most=5),) * 4)
    assert expected(capped, waiting, Caution(drain_s=30.0)).least == (1, 1, 1, 5)


def test_caution_adds_standard_errors_of_a_count() -> None:
    """0.05/s over 120 s are 6 arrivals ± √6."""
    cautious = expected(CASE, seen((0.05, 0.05, 0.05)), Caution(standard_errors=2.0)).network
    assert cautious.jobs[0].arrival_rate_per_s == pytest.approx((6 + 2 * 6**0.5) / 120)


def test_no_arrivals_at_all_are_a_load_too() -> None:
    for goal, name in ((Target(response_s=50.0), "min-cost"), (Budget(additional=3.0), "min-time")):
        allocator = allocator_for(CASE, AllocationConfig(allocator=name, goal=goal))
        assert allocator.decide(seen((0.0, 0.0, 0.0)), 0).reached


def test_min_time_spends_nothing_while_it_is_quiet_and_all_when_it_is_not() -> None:
    config = AllocationConfig(
        allocator="min-time", goal=Budget(additional=5.0), act_above_s=60.0, hysteresis=Hysteresis(scale_in_ms=60_000)
    )
    allocator = allocator_for(CASE, config)
    assert allocator.decide(seen(CALM), 0).consumers == (1, 1, 1, 1)
    spent = allocator.decide(seen(BUSY), 15_000).consumers
    assert spent == (2, 2, 1, 4)
    assert sum(allocator.decide(seen(CALM, spent), 30_000).consumers) == 9
    rested = allocator.decide(seen(CALM, spent), 90_000)
    assert rested.consumers == (1, 1, 1, 1)
    assert "no more than 60 s" in rested.decision.reason


def test_min_time_does_not_move_consumers_for_a_small_gain() -> None:
    config = AllocationConfig(allocator="min-time", goal=Budget(additional=6.0))
    allocator = allocator_for(CASE, config)
    best = allocator.decide(seen(BUSY), 0).consumers
    assert best == (3, 2, 1, 4)
    kept = allocator.decide(seen(BUSY, (2, 2, 1, 5)), 0)
    assert kept.consumers == (3, 2, 1, 4)  # worth it: 8 %
    fewer = tuple(rate * 0.7 for rate in BUSY)
    kept = allocator.decide(seen(fewer, (2, 2, 1, 5)), 0)
    assert kept.consumers == (2, 2, 1, 5)
    assert kept.decision.action == "keep"
    assert "not worth a change" in kept.decision.reason


def test_min_time_never_keeps_what_is_above_the_budget() -> None:
    allocator = allocator_for(CASE, AllocationConfig(allocator="min-time", goal=Budget(additional=5.0)))
    assert sum(allocator.decide(seen(BUSY, (3, 3, 2, 5)), 0).consumers) == 9


def threshold(**changes: float) -> AllocationConfig:
    return AllocationConfig(allocator="threshold", threshold=QueueThreshold(requests_per_consumer=5.0, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("requests", "consumers", "wanted"),
    [(10.9, 2, 2), (11.1, 2, 3), (9.1, 2, 2), (20.0, 4, 4), (22.1, 4, 5), (0.0, 1, 1), (100.0, 1, 5), (100.0, 6, 12)],
)
def test_the_threshold_is_that_of_the_horizontal_autoscaler(requests: float, consumers: int, wanted: int) -> None:
    """Within a tenth nothing changes; else ⌈requests/5⌉, at most double or four more in a period."""
    allocator = allocator_for(CASE, threshold())
    found = allocator.decide(seen(BUSY, (consumers, 1, 1, 1), (requests, 0.0, 0.0, 0.0)), 0)
    assert found.consumers == (wanted, 1, 1, 1)


def test_the_threshold_grows_once_in_a_period_and_declines_after_five_minutes() -> None:
    allocator = allocator_for(CASE, threshold())
    long = (100.0, 0.0, 0.0, 0.0)
    assert allocator.decide(seen(BUSY, (1, 1, 1, 1), long), 0).consumers[0] == 5
    assert allocator.decide(seen(BUSY, (5, 1, 1, 1), long), 10_000).consumers[0] == 5
    assert allocator.decide(seen(BUSY, (5, 1, 1, 1), long), 15_000).consumers[0] == 10
    assert allocator.decide(seen(BUSY, (10, 1, 1, 1), EMPTY), 315_000).consumers[0] == 10
    assert allocator.decide(seen(BUSY, (10, 1, 1, 1), EMPTY), 315_001).consumers[0] == 1


def test_a_goal_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(InvalidValue, match="min-cost needs a target"):
        allocator_for(CASE, AllocationConfig(allocator="min-cost", goal=Budget(additional=1.0)))
    with pytest.raises(InvalidValue, match="min-time needs a budget"):
        allocator_for(CASE, AllocationConfig(allocator="min-time", goal=Target(response_s=1.0)))


def test_nonsense_in_what_was_observed_or_configured_is_refused() -> None:
    for make in (
        lambda: seen((-1.0, 0.0, 0.0)),
        lambda: ObservedLoad(consumers=(1,), arrival_rates_per_s=(1.0,), requests=(0.0,), window_s=0.0),
        lambda: Caution(drain_s=0.0),
        lambda: Hysteresis(scale_in_ms=-1),
        lambda: Hysteresis(tolerance=1.0),
        lambda: QueueThreshold(requests_per_consumer=0.0),
    ):
        with pytest.raises(InvalidValue):
            make()
