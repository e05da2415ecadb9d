"""Compares predicted delivery times with simulations of random scenarios, and fits the constants of in-order bursts.

    python -m tests.models.in_order_fit --cases 200 --seed 7          # errors of the prediction
    python -m tests.models.in_order_fit --cases 200 --seed 7 --fit    # better values for `BurstFit`, if any

A scenario is anything between the limits of `CHECKED`, with 0, 1 or 12 % of the deliveries lost and repeated at once.
The simulation is a loop of its own, which shares no code with the queue machine or the models.
Fit with one seed, and judge with another. 200 cases of 2 million messages take about four minutes, a fit ten more.
"""

from __future__ import annotations

import argparse
import heapq
import math
from typing import NamedTuple

import msgspec
import numba
import numpy as np
from numpy.typing import NDArray

from lavant.models.reliable_queue import Phase, QueueScenario, ServiceTime, TimerStart, predict
from lavant.models.reliable_queue.attempts import all_attempts
from lavant.models.reliable_queue.bursts import FITTED, BurstFit, longer_wait_s
from lavant.models.reliable_queue.in_order import delaying
from lavant.models.reliable_queue.limits import BOTH_BUSY, CHECKED
from lavant.models.reliable_queue.scenario import DeliveryOrder, ServiceFamily, scenario_text

BATCHES = 40
FAMILIES = list(ServiceFamily)
LOGNORMAL, HYPEREXPONENTIAL = map(FAMILIES.index, (ServiceFamily.LOGNORMAL, ServiceFamily.HYPEREXPONENTIAL))
STEPS = (0.15, 0.05, 0.02)
"""Relative changes of a constant that a fit tries, one after the other."""


class Observed(NamedTuple):
    """One scenario in one order."""

    scenario: QueueScenario
    delivery_s: float
    half_width_s: float

    @property
    def error(self) -> float:
        return predict(self.scenario).delivery_s / self.delivery_s - 1.0


class Case(NamedTuple):
    in_order: Observed
    out_of_order: Observed
    longer_wait_s: float
    """By how much a message waits longer for consumers in order than out of order, in all its attempts."""


@numba.njit(cache=True)
def drawn(mean: float, scv: float, family: int) -> float:
    if scv == 0.0:
        return mean
    if family == LOGNORMAL:
        variance = math.log1p(scv)
        return mean * math.exp(math.sqrt(variance) * np.random.standard_normal() - variance / 2)
    if family == HYPEREXPONENTIAL and scv > 1.0:
        share = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        if np.random.random() >= share:
            share = 1.0 - share
        return mean * np.random.standard_exponential() / (2.0 * share)
    return mean * scv * np.random.standard_gamma(1.0 / scv)


@numba.njit(cache=True)
def simulated(arrival_scv, sender, consumer, loss, messages, seed, in_order):  # type: ignore[no-untyped-def]
    """Batch means of the delivery time and of the wait of an attempt; a phase is (count, mean, scv, family)."""
    np.random.seed(seed)
    free = [0.0] * sender[0]
    events = [(0.0, 0, 0.0) for _ in range(0)]  # time, kind (0 enters, 1 is done, 2 is lost), time of production
    waiting = [(0.0, 0.0) for _ in range(0)]
    head, idle, made, released = 0, consumer[0], 0, 0.0
    begin = 0.05 * messages
    sums, counts = np.zeros((2, BATCHES)), np.zeros((2, BATCHES))
    next_s = drawn(1.0, arrival_scv, 0)
    while made < messages or len(events) > 0:
        while made < messages and (len(events) == 0 or next_s <= events[0][0]):
            sent = max(next_s, free[0]) + drawn(sender[1], sender[2], sender[3])
            heapq.heapreplace(free, sent)
            released = max(released, sent)
            heapq.heappush(events, (released if in_order else sent, 0, next_s))
            made += 1
            next_s += drawn(1.0, arrival_scv, 0)
        now, kind, produced = heapq.heappop(events)
        batch = min(BATCHES - 1, int((produced - begin) * BATCHES / (messages - begin)))
        if kind == 1 and produced > begin:
            sums[0, batch] += now - produced
            counts[0, batch] += 1
        if kind != 0:
            idle += 1
        if kind != 1:
            waiting.append((produced, now))
        while idle > 0 and head < len(waiting):
            produced, since = waiting[head]
            head += 1
            idle -= 1
            if produced > begin:
                batch = min(BATCHES - 1, int((produced - begin) * BATCHES / (messages - begin)))
                sums[1, batch] += now - since
                counts[1, batch] += 1
            ends = now + drawn(consumer[1], consumer[2], consumer[3])
            heapq.heappush(events, (ends, 2 if np.random.random() < loss else 1, produced))
        if head > 200_000:
            waiting = waiting[head:]
            head = 0
    return sums / counts


def random_scenario(
    random: np.random.Generator,
    *,
    arrival_scv_max: float = CHECKED["arrival scv"][1],
    service_scv_max: float = CHECKED["service_scv"][1],
) -> QueueScenario:
    """In-order delivery between the limits of `CHECKED`, or with more variability."""

    def phase(utilisation_max: float, share: float = 1.0) -> Phase:
        count = max(1, round(math.exp(random.uniform(math.log(0.7), math.log(CHECKED["count"][1])))))
        scv = float(random.choice([0.0, 1.0, *random.uniform(0.1, service_scv_max, 2)]))
        load = share * random.uniform(CHECKED["utilisation"][0], utilisation_max)
        families = [each for each in FAMILIES if scv >= 1 or each is not ServiceFamily.HYPEREXPONENTIAL]
        family = families[random.integers(len(families))]
        return Phase(count=count, service=ServiceTime(mean_s=load * count, scv=scv, family=family))

    loss = float(random.choice([0.0, 0.01, CHECKED["loss"][1]]))
    most = random.permutation([CHECKED["utilisation"][1], BOTH_BUSY])
    return QueueScenario(
        arrival_rate_per_s=1.0,
        arrival_scv=float(random.choice([1.0, random.uniform(CHECKED["arrival scv"][0], arrival_scv_max)])),
        senders=phase(most[0]),
        consumers=phase(most[1], 1.0 - loss),
        loss=loss,
        visibility_s=0.0,
        timer=TimerStart.SEND,
        order=DeliveryOrder.IN_ORDER,
    )


def observe(scenario: QueueScenario, messages: int, seed: int) -> Case:
    """Both orders with the same seed, so that most of the chance cancels out in their difference."""
    assert scenario.senders is not None
    sender, consumer = (
        (phase.count, phase.service.mean_s, float(phase.service.scv), FAMILIES.index(phase.service.family))
        for phase in (scenario.senders, scenario.consumers)
    )
    within, out = (
        simulated(float(scenario.arrival_scv), sender, consumer, scenario.loss, messages, seed, in_order)
        for in_order in (True, False)
    )
    longer_s = (within[1].mean() - out[1].mean()) / (1.0 - scenario.loss)
    free = msgspec.structs.replace(scenario, order=DeliveryOrder.OUT_OF_ORDER)
    return Case(_observed(scenario, within[0]), _observed(free, out[0]), longer_s)


def _observed(scenario: QueueScenario, batches: NDArray[np.float64]) -> Observed:
    return Observed(scenario, float(batches.mean()), float(2.02 * batches.std(ddof=1) / math.sqrt(BATCHES)))


def misfit(cases: list[Case], fit: BurstFit) -> float:
    """The root of the mean squared error of the longer wait, as a share of the delivery time."""
    errors = []
    for case in cases:
        scenario = case.in_order.scenario
        senders, consumers = scenario.senders, scenario.consumers
        assert senders is not None
        found = longer_wait_s(
            rate_per_s=1.0,
            arrival_scv=scenario.arrival_scv,
            sender=senders.service,
            delaying=delaying(senders.service.mean_s, senders.count),
            consumer=all_attempts(consumers.service, attempts=1.0 / (1.0 - scenario.loss)),
            consumers=consumers.count,
            fit=fit,
        )
        errors.append((found - case.longer_wait_s) / case.in_order.delivery_s)
    return float(np.sqrt(np.mean(np.square(errors))))


def fitted(cases: list[Case]) -> BurstFit:
    """Change one constant at a time, in ever smaller steps, while that helps."""
    fit, least = FITTED, misfit(cases, FITTED)
    print(f"misfit {least:.3%}: {fit}", flush=True)
    for step in STEPS:
        for name in BurstFit._fields:
            for factor in (1.0 + step, 1.0 - step):
                while (found := misfit(cases, tried := fit._replace(**{name: getattr(fit, name) * factor}))) < least:
                    fit, least = tried, found
                    print(f"misfit {least:.3%}: {fit}", flush=True)
    return fit


def report(name: str, cases: list[Observed]) -> None:
    errors = np.array([case.error for case in cases])
    noise = np.array([case.half_width_s / case.delivery_s for case in cases])
    sizes = np.abs(errors)
    print(
        f"{name}, {len(cases)} cases: {sizes.mean():.1%} on average, {np.quantile(sizes, 0.95):.1%} in 95 of 100, "
        f"{sizes.max():.1%} at most; {(sizes > 0.05).sum()} above 5 %, {(sizes - noise > 0.05).sum()} of them by more "
        "than the simulation's interval"
    )
    for place in np.argsort(-sizes)[:3]:
        text = " ".join(scenario_text(cases[place].scenario).split())
        print(f"  {errors[place]:+.1%} ± {noise[place]:.1%}  {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--arrival-scv", type=float, default=CHECKED["arrival scv"][1], help="largest variability of arrivals"
    )
    parser.add_argument(
        "--service-scv", type=float, default=CHECKED["service_scv"][1], help="largest variability of services"
    )
    parser.add_argument("--fit", action="store_true", help="fit the constants to these cases")
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    scenarios = [
        random_scenario(random, arrival_scv_max=given.arrival_scv, service_scv_max=given.service_scv)
        for _ in range(given.cases)
    ]
    cases = [observe(each, given.messages, 1000 * given.seed + place) for place, each in enumerate(scenarios)]
    report("in-order", [case.in_order for case in cases])
    report("out-of-order", [case.out_of_order for case in cases])
    if given.fit:
        print(fitted(cases))


if __name__ == "__main__":
    main()
