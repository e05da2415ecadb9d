"""What to choose for a reliable queue: the least consumers for a delivery time, and the best visibility timeout.

A timeout that is too short makes consumers process messages twice, which costs capacity; one that is too long leaves a
lost message invisible. The best one has the least mean delivery time of all that repeat no more messages than allowed.
"""

from __future__ import annotations

import math

import msgspec

from lavant.core.errors import Infeasible
from lavant.models.reliable_queue import limits
from lavant.models.reliable_queue.prediction import QueuePrediction, attempts_of, predict
from lavant.models.reliable_queue.scenario import (
    COUNT_MAX,
    SECONDS_MAX,
    Phase,
    QueueGoal,
    QueueScenario,
    TimerStart,
)

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Of the best timeout: those whose cost is shown."""
_TRIED = 25
_HALVINGS = 60


class TimeoutCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one visibility timeout costs."""

    visibility_s: float
    duplicates: float
    """Messages that are processed again although nothing was lost, for each message."""
    utilisation: float
    delivery_s: float
    p95_s: float
    lost_s: float
    """A message whose first delivery is lost is delayed by about so much."""


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and what was predicted."""

    prediction: QueuePrediction
    least_consumers: int | None
    """For the goal; None without one."""
    at_least: QueuePrediction | None
    """With so many."""
    best_visibility_s: float | None
    """None if the timer starts when a message is sent: the shortest is the best there."""
    timeouts: tuple[TimeoutCost, ...]
    """The best one among others."""
    warnings: tuple[str, ...]


def plan(scenario: QueueScenario, goal: QueueGoal) -> QueuePlan:
    """Predict, and choose for the goal. Raises `Infeasible` if the load is unstable or the goal out of reach.

    >>> from lavant.models.reliable_queue.scenario import ServiceTime
    >>> consumers = Phase(count=5, service=ServiceTime(mean_s=0.1))
    >>> scenario = QueueScenario(arrival_rate_per_s=30.3, consumers=consumers, loss=0.01, visibility_s=5.0)
    >>> found = plan(scenario, QueueGoal(delivery_s=0.2))
    >>> found.least_consumers, round(found.best_visibility_s, 2)
    (5, 0.44)
    """
    prediction = predict(scenario)
    least = None if goal.delivery_s is None else least_consumers(scenario, goal)
    best_s = best_timeout_s(scenario, goal) if scenario.timer is TimerStart.RECEIVE else None
    return QueuePlan(
        prediction=prediction,
        least_consumers=least,
        at_least=None if least is None else predict(with_consumers(scenario, least), goal.percentile),
        best_visibility_s=best_s,
        timeouts=() if best_s is None else tuple(timeout_cost(scenario, best_s * factor) for factor in FACTORS),
        warnings=_warnings(scenario, goal, prediction),
    )


def with_consumers(scenario: QueueScenario, count: int) -> QueueScenario:
    consumers = Phase(count=count, service=scenario.consumers.service)
    return msgspec.structs.replace(scenario, consumers=consumers)


def least_consumers(scenario: QueueScenario, goal: QueueGoal) -> int:
    """The fewest consumers with which the goal is reached: found by doubling, then halving."""
    assert goal.delivery_s is not None
    deliveries = scenario.arrival_rate_per_s / (1.0 - scenario.loss)
    low = math.floor(deliveries * scenario.consumers.service.mean_s)
    high = min(COUNT_MAX, low + 1)
    while not _reaches(scenario, goal, high):
        if high == COUNT_MAX:
            _refuse(scenario, goal)
        low, high = high, min(COUNT_MAX, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if _reaches(scenario, goal, middle):
            high = middle
        else:
            low = middle
    return high


def _reaches(scenario: QueueScenario, goal: QueueGoal, count: int) -> bool:
    try:
        found = predict(with_consumers(scenario, count), goal.percentile)
    except Infeasible:
        return False
    assert goal.delivery_s is not None
    return found.percentile_s(goal.percentile) <= goal.delivery_s


def _refuse(scenario: QueueScenario, goal: QueueGoal) -> None:
    found = predict(with_consumers(scenario, COUNT_MAX), goal.percentile)
    kind = "mean" if goal.percentile is None else f"p{100 * goal.percentile:g} of the"
    shares = {
        "the timeout": scenario.loss > 0,
        "the link": scenario.link_s > 0,
        "the time at senders": scenario.senders is not None,
    }
    shorten = " or ".join(["the service time", *(name for name, counts in shares.items() if counts)])
    raise Infeasible(
        f"no number of consumers brings the {kind} delivery time to {goal.delivery_s:g} s: with {COUNT_MAX} it is "
        f"{found.percentile_s(goal.percentile):.3g} s; shorten {shorten}"
    )


def best_timeout_s(scenario: QueueScenario, goal: QueueGoal) -> float:
    """Of the timeouts that repeat no more messages than allowed, the one with the least mean delivery time.

    None is shorter than a service, over the link and back, even if a single consumer would repeat nothing.
    """
    low_s = high_s = scenario.consumers.service.mean_s + 2.0 * scenario.link_s
    while _duplicates(scenario, high_s) > goal.duplicates:
        if high_s > SECONDS_MAX:
            raise Infeasible(f"no timeout up to {SECONDS_MAX:g} s keeps the duplicates below {goal.duplicates:g}")
        low_s, high_s = high_s, 2.0 * high_s
    for _ in range(_HALVINGS):
        middle_s = 0.5 * (low_s + high_s)
        if _duplicates(scenario, middle_s) > goal.duplicates:
            low_s = middle_s
        else:
            high_s = middle_s
        if high_s - low_s <= 1e-6 * high_s:
            break
    tried = [high_s * math.pow(20.0, number / _TRIED) for number in range(_TRIED + 1)]
    costs = [(predict(msgspec.structs.replace(scenario, visibility_s=each)).delivery_s, each) for each in tried]
    least_s = min(costs)[0]
    return next(each for delivery_s, each in costs if delivery_s <= least_s * (1.0 + 1e-4))


def _duplicates(scenario: QueueScenario, visibility_s: float) -> float:
    return attempts_of(msgspec.structs.replace(scenario, visibility_s=visibility_s)) * (1.0 - scenario.loss) - 1.0


def timeout_cost(scenario: QueueScenario, visibility_s: float) -> TimeoutCost:
    """What this timeout would cost."""
    changed = msgspec.structs.replace(scenario, visibility_s=visibility_s)
    found = predict(changed)
    return TimeoutCost(
        visibility_s=visibility_s,
        duplicates=found.duplicates,
        utilisation=found.consumers.utilisation,
        delivery_s=found.delivery_s,
        p95_s=found.p95_s,
        lost_s=visibility_s + found.consumers.wait_s,
    )


def _warnings(scenario: QueueScenario, goal: QueueGoal, found: QueuePrediction) -> tuple[str, ...]:
    warnings = []
    mean_s = scenario.consumers.service.mean_s
    link = f" and twice the link_s of {scenario.link_s:g} s" if scenario.link_s else ""
    if scenario.timer is TimerStart.RECEIVE and scenario.in_time_s < mean_s:
        warnings.append(
            f"visibility_s {scenario.visibility_s:g} is below the mean service time of {mean_s:g} s{link}: messages "
            f"become visible while they are processed, each is processed {1.0 + found.duplicates:.2f} times on "
            f"average, and consumers are {found.consumers.utilisation:.0%} busy"
        )
    if scenario.is_acknowledged_late:
        warnings.append(
            f"visibility_s {scenario.visibility_s:g} is not above twice the link_s of {scenario.link_s:g} s: messages "
            "become visible before an acknowledgement can be back, which the prediction leaves out"
        )
    if limits.repeats_too_often(found):
        warnings.append(
            f"{found.duplicates:.2g} duplicates for each message keep consumers {found.consumers.utilisation:.0%} "
            f"busy: with more than {limits.DUPLICATES:g} at a utilisation above {limits.BUSY_WITH_DUPLICATES:g}, "
            "predicted delivery times may be 50% too long: check with `lavant queue compare`"
        )
    if beyond := limits.beyond(scenario, found):
        warnings.append(
            f"{scenario.order} delivery times are within 5 % of simulations for {limits.described(scenario)}; with "
            f"{', '.join(beyond)} they may be {limits.ERROR_BEYOND[scenario.order]:.0%} off: check with `lavant queue "
            "compare`"
        )
    if limits.order_matters(scenario) and goal.percentile is not None:
        warnings.append(
            "percentiles of in-order delivery times are 4 % off simulations on average, and up to 34 %: check with "
            "`lavant queue compare`"
        )
    return tuple(warnings)
