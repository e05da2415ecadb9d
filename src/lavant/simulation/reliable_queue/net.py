"""A scenario of the reliable queue with the paper's coloured Petri net."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.petri.monitors import DataCollection
from lavant.models.petri.nets.reliable_queue import IN_ORDER, ReliableQueue, monitors, reliable_queue
from lavant.models.petri.simulation import Simulation
from lavant.models.reliable_queue.prediction import require_stable
from lavant.models.reliable_queue.scenario import QueueScenario, ServiceFamily, ServiceTime, TimerStart
from lavant.simulation.reliable_queue.observed import ObservedQueue, observed

WARM_UP = 0.1
TIMEOUT_S_MIN = 1e-6
"""The net's timeouts are positive."""
DELIVERED_S = 1e15
"""Later than any delivery."""


def simulate_net(scenario: QueueScenario, *, messages: int, seed: int) -> ObservedQueue:
    """Run the net until about so many messages are produced; the first tenth of the time is the warm-up.

    Then it runs on until all of them are delivered: a lost one may be late by many timeouts. So that the load does not
    end earlier, a few more are produced than are counted.
    """
    require_stable(scenario)
    spread = math.sqrt(messages * max(1.0, scenario.arrival_scv))
    given = msgspec.structs.replace(net_of(scenario), messages=math.ceil(messages + 5.0 * spread))
    delivered = DataCollection("Delivered_Id", "Recv_Proc'Deliver", "sent.id")
    run = Simulation(reliable_queue(given).flatten(), np.random.default_rng(seed), (*monitors(given), delivered))
    length_s = messages / scenario.arrival_rate_per_s
    run.run(until=WARM_UP * length_s)
    last_id = run.counts()["Send_Proc'Produce"]
    run.reset_monitors()
    run.run(until=length_s)
    measured, produced = run.statistics(), run.counts()["Send_Proc'Produce"]
    run.run(until=DELIVERED_S)
    counts, ids = run.counts(), run.values(delivered.name)
    is_new = (ids > last_id) & (ids <= produced)
    _, first = np.unique(ids[is_new], return_index=True)  # a message may come twice, and is delivered the first time
    starts = counts["Broker'Get_Oldest_Msg" if given.order == IN_ORDER else "Broker'Get_Msg"]
    return observed(
        run.values("Msg_Delivery_Latency")[is_new][first],
        attempts=starts / counts["Send_Proc'Produce"],
        duplicates=float(is_new.sum()) / max(1, len(first)) - 1.0,
        utilisation=measured["Busy_Broker_Threads"].mean / scenario.consumers.count,
        waiting=measured["Queue_Length"].mean - measured["Invisible"].mean
        if given.order == IN_ORDER
        else measured["Waiting_In_Queue"].mean,
    )


def net_of(scenario: QueueScenario) -> ReliableQueue:
    """The net's parameters. Where messages come to the queue by themselves, a sender takes no time.

    Raises `InvalidValue` for a scenario that the net cannot show.
    """
    senders, consumers = scenario.senders, scenario.consumers
    if scenario.is_acknowledged_late:
        raise InvalidValue(
            f"its timers would run out before acknowledgements are back; give a visibility_s above twice the link_s, "
            f"{2.0 * scenario.link_s:g}, got {scenario.visibility_s:g}"
        )
    gap = ServiceTime(mean_s=1.0 / scenario.arrival_rate_per_s, scv=scenario.arrival_scv)
    return ReliableQueue(
        order=str(scenario.order),
        arrivals_per_s=scenario.arrival_rate_per_s,
        forwards_per_s=1.0 / consumers.service.mean_s,
        sender_threads=1 if senders is None else senders.count,
        broker_threads=consumers.count,
        reliability=1.0 - scenario.loss,
        link_s=scenario.link_s,
        timeout_s=max(scenario.visibility_s, TIMEOUT_S_MIN),
        timer_starts="sending" if scenario.timer is TimerStart.SEND else "processing",
        arriving=inscription(gap),
        sending="0.0" if senders is None else inscription(senders.service),
        forwarding=inscription(consumers.service),
    )


def inscription(time: ServiceTime) -> str:
    """A random time as the net writes it.

    >>> inscription(ServiceTime(mean_s=0.5)), inscription(ServiceTime(mean_s=0.5, scv=0.25))
    ('exponential(2.0)', 'gamma(8.0, 4.0)')
    """
    mean_s, scv = float(time.mean_s), float(time.scv)
    if scv == 0:
        return f"{mean_s}"
    if time.family is ServiceFamily.LOGNORMAL:
        variance = math.log1p(scv)
        return f"lognormal({math.log(mean_s) - variance / 2}, {variance})"
    if scv == 1:
        return f"exponential({1.0 / mean_s})"
    if time.family is ServiceFamily.HYPEREXPONENTIAL:
        share = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        short, long = 2.0 * share / mean_s, 2.0 * (1.0 - share) / mean_s
        return f"(exponential({short}) if bernoulli({share}) else exponential({long}))"
    return f"gamma({1.0 / (mean_s * scv)}, {1.0 / scv})"
