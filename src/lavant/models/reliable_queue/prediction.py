"""All that is predicted of one scenario: utilisation, waiting, attempts, and the delivery time with its distribution.

    T = 2·D_link + time with a sender + time until the first complete attempt

Eq. 9, corrected: what a loss adds is another attempt after the rest of the timeout, not another link delay. The
delivery time ends with the first complete attempt; duplicates come later. Waits are 0 or exponential, with the
probability and mean of GI/G/m; the times of both phases are taken as independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from lavant.core.errors import Infeasible
from lavant.models.delay import delay_probability
from lavant.models.layout import Floats
from lavant.models.reliable_queue import attempts, bursts, grids, in_order, lindley
from lavant.models.reliable_queue.columns import QueueColumns, change_s, evaluate
from lavant.models.reliable_queue.scenario import (
    DeliveryOrder,
    Phase,
    QueueScenario,
    TimerStart,
    require_percentile,
)

ITERATIONS_MAX = 200
TOLERANCE = 1e-9
_IN_TIME = 1e-9
"""A share of longer services that no longer counts."""


class PhasePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """Senders or consumers."""

    count: int
    utilisation: float
    waiting: float
    """Messages that wait for them."""
    wait_s: float
    """Of one attempt."""


class QueuePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """What one scenario leads to."""

    senders: PhasePrediction | None
    consumers: PhasePrediction
    attempts: float
    """Deliveries of a message, including lost ones."""
    duplicates: float
    """Messages that are processed again although nothing was lost, for each message."""
    requests: float
    """Messages in both phases, waiting or in service."""
    held: float
    """In-order only: messages that wait for older ones which are still with senders."""
    delivery_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    """Infinite if it lies beyond what is computed: later than many timeouts."""
    percentile: float | None = None
    """Another percentile, if one was asked for."""
    at_percentile_s: float | None = None

    def percentile_s(self, fraction: float | None) -> float:
        """One of the percentiles that were computed; the mean for None."""
        known = {0.5: self.p50_s, 0.95: self.p95_s, 0.99: self.p99_s, self.percentile: self.at_percentile_s}
        found = self.delivery_s if fraction is None else known[fraction]
        assert found is not None
        return found


def attempts_of(scenario: QueueScenario) -> float:
    """How often a message is received.

    A message that waits can still be acknowledged, so waiting lowers the number, and repetitions alone never overload
    the consumers. It is a fixed point, found by bisection because iteration oscillates near the limit.
    """
    q, service = 1.0 - scenario.loss, scenario.consumers.service
    if scenario.timer is TimerStart.SEND:
        return 1.0 / q
    most = attempts.success(service, scenario.in_time_s, loss=scenario.loss, again=attempts.NO_WAIT)
    if most >= q * (1.0 - _IN_TIME):
        return 1.0 / q
    limit = scenario.consumers.rate_per_s / scenario.arrival_rate_per_s
    low, high = 1.0 / q, min(1.0 / max(most, 1e-300), limit)
    for _ in range(ITERATIONS_MAX):
        tried = 0.5 * (low + high)
        if _needed(scenario, tried) > tried:
            low = tried
        else:
            high = tried
        if high - low <= TOLERANCE * high:
            break
    return 0.5 * (low + high)


def _needed(scenario: QueueScenario, tried: float) -> float:
    """The attempts that follow from the waits under so many attempts."""
    columns = _columns(scenario, tried)
    busy, wait = float(columns.utilisation[1][0]), _roughly(scenario, columns, tried)
    again = attempts.wait_for_others(wait, scenario.consumers.count, busy)
    return 1.0 / attempts.success(scenario.consumers.service, scenario.in_time_s, loss=scenario.loss, again=again)


def predict(scenario: QueueScenario, percentile: float | None = None) -> QueuePrediction:
    """The steady state, with one more percentile if wanted; raises `Infeasible` if there is none.

    >>> from lavant.models.reliable_queue.scenario import ServiceTime
    >>> threads = Phase(count=6, service=ServiceTime(mean_s=0.1))
    >>> scenario = QueueScenario(arrival_rate_per_s=30.3, senders=threads, consumers=threads, loss=0.01,
    ...                          visibility_s=0.0, timer=TimerStart.SEND)
    >>> found = predict(scenario)
    >>> round(found.delivery_s, 5), round(found.consumers.utilisation, 3)
    (0.20816, 0.51)
    """
    if percentile is not None:
        require_percentile(percentile)
    require_stable(scenario)
    count = attempts_of(scenario)
    columns = _columns(scenario, count)
    busy = float(columns.utilisation[1][0])
    delayed, wait_s = _wait(scenario, columns, count)
    again = attempts.wait_for_others(attempts.Wait(delayed, wait_s), scenario.consumers.count, busy)
    reach_s, step_s = _reach_s(scenario, wait_s), _step_s(scenario, wait_s)
    is_long = scenario.loss > 0 and scenario.visibility_s > reach_s
    first_step_s = reach_s / grids.POINTS if is_long else step_s
    first_s, first = _first_phase(scenario, first_step_s)
    held = 0.0
    if scenario.order is DeliveryOrder.IN_ORDER and scenario.senders is not None:
        wait_s, delayed = _in_bursts(scenario, columns, count)
        held = scenario.arrival_rate_per_s * (first_s - scenario.senders.service.mean_s - _wait_1_s(scenario))
    wait = attempts.Wait(delayed, wait_s)
    second_s, second = _second_phase(scenario, step_s, wait, again)
    if is_long:
        percentile_s = _between_timeouts(scenario, wait, first, first_step_s)
    else:
        total = grids.inverse(grids.transform(first) * grids.transform(second))
        percentile_s = partial(grids.percentile_s, total, step_s)
    link_s = 2.0 * scenario.link_s

    def at(fraction: float) -> float:
        return link_s + percentile_s(fraction)

    waiting_1 = scenario.arrival_rate_per_s * _wait_1_s(scenario)
    waiting = scenario.arrival_rate_per_s * count * wait_s
    in_service = float(columns.requests[0]) - float(columns.waiting[0][0]) - float(columns.waiting[1][0])
    return QueuePrediction(
        senders=None
        if scenario.senders is None
        else PhasePrediction(
            count=scenario.senders.count,
            utilisation=float(columns.utilisation[0][0]),
            waiting=waiting_1,
            wait_s=_wait_1_s(scenario),
        ),
        consumers=PhasePrediction(
            count=scenario.consumers.count,
            utilisation=busy,
            waiting=waiting,
            wait_s=wait_s,
        ),
        attempts=count,
        duplicates=max(0.0, count * (1.0 - scenario.loss) - 1.0),
        requests=in_service + waiting_1 + waiting + held,
        held=held,
        delivery_s=link_s + first_s + second_s,
        p50_s=at(0.5),
        p95_s=at(0.95),
        p99_s=at(0.99),
        percentile=percentile,
        at_percentile_s=None if percentile is None else at(percentile),
    )


def require_stable(scenario: QueueScenario) -> None:
    """Raise if a phase is too slow, with the threads that it needs."""
    rate = scenario.arrival_rate_per_s
    senders, consumers, q = scenario.senders, scenario.consumers, 1.0 - scenario.loss
    slow = []
    if senders is not None and rate >= senders.rate_per_s:
        slow.append(
            f"senders are too slow: {_capacity(senders, 'sender')}, and {rate:g} messages a second arrive; give them "
            f"a count of at least {_least(senders, rate)}"
        )
    if rate / q >= consumers.rate_per_s:
        again = f" ({scenario.loss:.3g} of the deliveries are lost and repeated)" if scenario.loss else ""
        slow.append(
            f"consumers are too slow: {_capacity(consumers, 'consumer')}, and {rate / q:g} deliveries a second are "
            f"needed{again}; give them a count of at least {_least(consumers, rate / q)}"
        )
    if slow:
        raise Infeasible("; ".join(slow))


def _capacity(phase: Phase, name: str) -> str:
    plural = "s" if phase.count > 1 else ""
    return f"{phase.count} {name}{plural} with {phase.service.mean_s:g} s a message do {phase.rate_per_s:g} a second"


def _least(phase: Phase, rate_per_s: float) -> int:
    return math.floor(rate_per_s * phase.service.mean_s) + 1


def _columns(scenario: QueueScenario, count: float) -> QueueColumns:
    senders, consumers = scenario.senders, scenario.consumers
    return evaluate(
        arrival_rate_per_s=scenario.arrival_rate_per_s,
        arrival_scv=scenario.arrival_scv,
        senders=1 if senders is None else senders.count,
        sender_s=0.0 if senders is None else senders.service.mean_s,
        sender_scv=1.0 if senders is None else senders.service.scv,
        consumers=consumers.count,
        consumer_s=consumers.service.mean_s,
        consumer_scv=consumers.service.scv,
        attempts=count,
    )


def _roughly(scenario: QueueScenario, columns: QueueColumns, count: float) -> attempts.Wait:
    """The wait of an attempt, from two moments."""
    consumers = scenario.consumers
    load = scenario.arrival_rate_per_s * count * consumers.service.mean_s
    delayed = delay_probability(load, consumers.count, float(columns.arrival_scv[1][0]), consumers.service.scv)
    return attempts.Wait(delayed, float(columns.waiting[1][0]) / (scenario.arrival_rate_per_s * count))


def _wait(scenario: QueueScenario, columns: QueueColumns, count: float) -> tuple[float, float]:
    """Of an attempt: the probability of a wait, and the mean over all, from the whole distributions.

    A message that is visible again at once goes on where it was, or another one goes on in its place: the number of
    messages is the same as if all attempts at one were a single service. The longer the timeout beside the time τ in
    which the queue changes, the more a repetition is like any other arrival: τ/(τ + 2·V) fits simulations.
    """
    rate, consumers, arrival_scv = scenario.arrival_rate_per_s, scenario.consumers, float(columns.arrival_scv[1][0])
    service = consumers.service
    wait_s = lindley.wait_s(rate_per_s=rate * count, arrival_scv=arrival_scv, service=service, servers=consumers.count)
    load = rate * count * service.mean_s
    delayed = delay_probability(load, consumers.count, arrival_scv, service.scv)
    if count <= 1:
        return delayed, wait_s
    tau_s = change_s(1.0, float(service.scv), service.mean_s, float(consumers.count), load)
    at_once = tau_s / (tau_s + 2.0 * scenario.visibility_s)
    whole_s = lindley.wait_s(
        rate_per_s=rate,
        arrival_scv=max(0.0, 1.0 + count * (arrival_scv - 1.0)),
        service=attempts.all_attempts(service, attempts=count),
        servers=consumers.count,
    )
    return delayed, at_once * whole_s / count + (1.0 - at_once) * wait_s


def _wait_1_s(scenario: QueueScenario) -> float:
    """For a sender."""
    if scenario.senders is None:
        return 0.0
    return lindley.wait_s(
        rate_per_s=scenario.arrival_rate_per_s,
        arrival_scv=scenario.arrival_scv,
        service=scenario.senders.service,
        servers=scenario.senders.count,
    )


def _first_phase(scenario: QueueScenario, step_s: float) -> tuple[float, Floats]:
    """The time until a message is in the queue and may start."""
    at_s = grids.times(step_s)
    senders = scenario.senders
    if senders is None:
        return 0.0, np.ones_like(at_s)
    wait_s, service = _wait_1_s(scenario), senders.service
    load = scenario.arrival_rate_per_s * service.mean_s
    delayed = delay_probability(load, senders.count, scenario.arrival_scv, service.scv)
    served, mean_s = grids.service_cdf(service, at_s), service.mean_s
    if scenario.order is DeliveryOrder.IN_ORDER:
        residual = grids.residual_cdf(served, step_s)
        served = in_order.release_cdf(served, residual, in_order.in_service(load, senders.count))
        mean_s = grids.mean_of(served, step_s)
        later_s = (1.0 - delayed) * bursts.later_release_s(
            rate_per_s=scenario.arrival_rate_per_s,
            arrival_scv=scenario.arrival_scv,
            sender=service,
            delaying=in_order.delaying(load, senders.count),
        )
        served = np.interp(at_s * (mean_s / (mean_s + later_s)), at_s, served)
        mean_s += later_s
    whole = grids.inverse(grids.transform(grids.wait_cdf(delayed, wait_s, at_s)) * grids.transform(served))
    return wait_s + mean_s, whole


def _in_bursts(scenario: QueueScenario, columns: QueueColumns, count: float) -> tuple[float, float]:
    """The wait of an attempt where messages are released in order, and its probability."""
    senders, consumers, rate = scenario.senders, scenario.consumers, scenario.arrival_rate_per_s
    assert senders is not None
    longer_s = bursts.longer_wait_s(
        rate_per_s=rate,
        arrival_scv=scenario.arrival_scv,
        sender=senders.service,
        delaying=in_order.delaying(rate * senders.service.mean_s, senders.count),
        consumer=attempts.all_attempts(consumers.service, attempts=count),
        consumers=consumers.count,
    )
    longer_s /= count
    delayed, usual_s = _wait(scenario, columns, count)
    waits_too = longer_s / (longer_s + 0.7 * consumers.service.mean_s)  # fits simulations to .04
    return usual_s + longer_s, delayed + (1.0 - delayed) * waits_too


def _second_phase(
    scenario: QueueScenario, step_s: float, wait: attempts.Wait, again: attempts.Wait
) -> tuple[float, Floats]:
    """From the time a message may start to its first complete attempt."""
    p, timeout_s, service = scenario.loss, scenario.visibility_s, scenario.consumers.service
    at_s = grids.times(step_s)
    served = grids.service_cdf(service, at_s)
    if scenario.timer is TimerStart.SEND:
        attempt = grids.inverse(grids.transform(grids.wait_cdf(*wait, at_s)) * grids.transform(served))
        whole = attempts.repeated(attempt, step_s, visibility_s=timeout_s, loss=p)
        return (wait.mean_s + service.mean_s + p * timeout_s) / (1.0 - p), whole
    whole = attempts.completion_cdf(served, step_s, visibility_s=timeout_s, loss=p, wait=wait, again=again)
    in_time = float(grids.service_cdf(service, np.array([timeout_s]))[0])
    if in_time > 1.0 - _IN_TIME:
        return (wait.mean_s + p * timeout_s) / (1.0 - p) + service.mean_s, whole
    return grids.mean_of(whole, step_s), whole


def _between_timeouts(
    scenario: QueueScenario, wait: attempts.Wait, first_cdf: Floats, step_s: float
) -> Callable[[float], float]:
    """Percentiles where a timeout is longer than all the rest, so that no grid could hold both.

    Then a message that was lost k times is later than nearly all that were lost less often.
    """
    p, at_s = scenario.loss, grids.times(step_s)
    first, waited = grids.transform(first_cdf), grids.transform(grids.wait_cdf(*wait, at_s))
    served = grids.transform(grids.service_cdf(scenario.consumers.service, at_s))

    def percentile_s(fraction: float) -> float:
        losses = math.floor(math.log1p(-fraction) / math.log(p) + _IN_TIME)
        rest = first * waited ** (losses + 1) * served ** (losses + 1 if scenario.timer is TimerStart.SEND else 1)
        share = max(0.0, 1.0 - (1.0 - fraction) / p**losses) / (1.0 - p)
        return losses * scenario.visibility_s + grids.percentile_s(grids.inverse(rest), step_s, share)

    return percentile_s


def _reach_s(scenario: QueueScenario, wait_s: float) -> float:
    """Beyond nearly all delivery times of messages that are not lost."""
    phases = [phase.service for phase in (scenario.senders, scenario.consumers) if phase is not None]
    reach_s = sum(service.mean_s * (12.0 + 12.0 * math.sqrt(service.scv)) for service in phases)
    reach_s += 16.0 * (wait_s + _wait_1_s(scenario))
    return 2.0 * reach_s if scenario.order is DeliveryOrder.IN_ORDER else reach_s


def _step_s(scenario: QueueScenario, wait_s: float) -> float:
    """A grid that reaches beyond nearly all delivery times, with the timeout on one of its points."""
    reach_s = _reach_s(scenario, wait_s)
    if scenario.loss > 0:
        reach_s += scenario.visibility_s * max(1.0, math.ceil(math.log(1e-5) / math.log(scenario.loss)))
    step_s = reach_s / grids.POINTS
    if step_s < scenario.visibility_s < reach_s:
        return scenario.visibility_s / round(scenario.visibility_s / step_s)
    return step_s
