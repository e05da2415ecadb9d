"""A scenario of the reliable queue with the paper's coloured Petri net."""

from __future__ import annotations

import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.petri.nets.reliable_queue import IN_ORDER, ReliableQueue, monitors, reliable_queue
from lavant.models.petri.simulation import Simulation
from lavant.models.reliable_queue.prediction import require_stable
from lavant.models.reliable_queue.scenario import QueueScenario, TimerStart
from lavant.simulation.reliable_queue.observed import ObservedQueue, observed

WARM_UP = 0.1
TIMEOUT_S_MIN = 1e-6
"""The net's timeouts are positive."""


def simulate_net(scenario: QueueScenario, *, messages: int, seed: int) -> ObservedQueue:
    """Run the net until about so many messages are produced; the first tenth of the time is the warm-up."""
    require_stable(scenario)
    given = net_of(scenario)
    run = Simulation(reliable_queue(given).flatten(), np.random.default_rng(seed), monitors(given))
    length_s = messages / scenario.arrival_rate_per_s
    run.run(until=WARM_UP * length_s)
    run.reset_monitors()
    run.run(until=length_s)
    measured = run.statistics()
    produced, delivered = measured["Produced"].count, measured["Delivered"].count
    counts = run.counts()
    starts = counts["Broker'Get_Oldest_Msg" if given.order == IN_ORDER else "Broker'Get_Msg"]
    return observed(
        run.values("Msg_Delivery_Latency"),
        attempts=starts / counts["Send_Proc'Produce"],
        duplicates=max(0.0, delivered / produced - 1.0) if _may_repeat(scenario) else 0.0,
        utilisation=measured["Busy_Broker_Threads"].mean / scenario.consumers.count,
        waiting=measured["Queue_Length"].mean - measured["Busy_Broker_Threads"].mean,
    )


def net_of(scenario: QueueScenario) -> ReliableQueue:
    """The net's parameters; raises `InvalidValue` for a scenario that the paper's net cannot show."""
    senders, consumers = scenario.senders, scenario.consumers
    if senders is None:
        raise InvalidValue("the net needs senders; add a [senders] table")
    if scenario.arrival_scv != 1 or senders.service.scv != 1 or consumers.service.scv != 1:
        raise InvalidValue("the net has exponential times only; take 1 for scv and service_scv")
    return ReliableQueue(
        order=str(scenario.order),
        arrivals_per_s=scenario.arrival_rate_per_s,
        sends_per_s=1.0 / senders.service.mean_s,
        forwards_per_s=1.0 / consumers.service.mean_s,
        sender_threads=senders.count,
        broker_threads=consumers.count,
        reliability=1.0 - scenario.loss,
        link_s=scenario.link_s,
        timeout_s=max(scenario.visibility_s, TIMEOUT_S_MIN),
        timer_starts="sending" if scenario.timer is TimerStart.SEND else "processing",
    )


def _may_repeat(scenario: QueueScenario) -> bool:
    return scenario.timer is TimerStart.RECEIVE
