"""The load of a scenario, drawn ahead: when messages are produced and enter the queue, and what attempts take.

Senders take messages in the order of production and send what is ready; in-order, a sender waits until all older
messages are sent. The queue's consumers then start messages in the order in which they entered.

The times of attempts belong to messages, not to consumers: so the simulated queue and one that runs can be given the
same load, and what differs between them is not chance.
"""

from __future__ import annotations

from heapq import heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.models.layout import Floats
from lavant.models.reliable_queue.scenario import DeliveryOrder, QueueScenario, ServiceFamily, ServiceTime

ATTEMPTS = 4
"""Attempts that are drawn for each message; a later one takes those of another message."""


class QueueLoad(NamedTuple):
    """Times in seconds, by message."""

    produced_s: Floats
    sent_s: Floats
    """When a sender is done with it, or it is produced if there are no senders."""
    enters_s: Floats
    """When it is in the queue: in-order, not before the ones before it."""
    services_s: Floats
    """By message and attempt."""
    losses: NDArray[np.bool_]

    def attempt(self, message: int, number: int) -> tuple[float, bool]:
        """The service time of an attempt, numbered from 1, and whether it is lost."""
        turns, place = divmod(number - 1, ATTEMPTS)
        row = (message + turns) % len(self.services_s)
        return float(self.services_s[row, place]), bool(self.losses[row, place])


def draw_load(scenario: QueueScenario, messages: int, random: np.random.Generator) -> QueueLoad:
    gaps = ServiceTime(mean_s=1.0 / scenario.arrival_rate_per_s, scv=scenario.arrival_scv)
    produced_s = np.cumsum(service_times(gaps, messages, random))
    sent_s = produced_s
    if scenario.senders is not None:
        services = service_times(scenario.senders.service, messages, random)
        sent_s = _sent(produced_s, services, scenario.senders.count)
    enters_s = np.maximum.accumulate(sent_s) if scenario.order is DeliveryOrder.IN_ORDER else sent_s
    services_s = service_times(scenario.consumers.service, messages * ATTEMPTS, random).reshape(messages, ATTEMPTS)
    losses = random.random((messages, ATTEMPTS)) < scenario.loss
    return QueueLoad(produced_s, sent_s + scenario.link_s, enters_s + scenario.link_s, services_s, losses)


def service_times(service: ServiceTime, count: int, random: np.random.Generator) -> Floats:
    """
    >>> service_times(ServiceTime(mean_s=2.0, scv=0.0), 2, np.random.default_rng(1)).tolist()
    [2.0, 2.0]
    """
    mean_s, scv = service.mean_s, service.scv
    if scv == 0:
        return np.full(count, mean_s)
    if service.family is ServiceFamily.LOGNORMAL:
        variance = np.log1p(scv)
        return mean_s * random.lognormal(-variance / 2, np.sqrt(variance), count)
    if service.family is ServiceFamily.HYPEREXPONENTIAL and scv > 1:
        share = 0.5 * (1.0 + np.sqrt((scv - 1.0) / (scv + 1.0)))
        shares = np.where(random.random(count) < share, share, 1.0 - share)
        return np.asarray(mean_s * random.standard_exponential(count) / (2.0 * shares))
    return mean_s * scv * random.standard_gamma(1.0 / scv, count)


def _sent(produced_s: Floats, services_s: Floats, senders: int) -> Floats:
    """When each message is sent: the sender that is free first takes the next message."""
    free_s = [0.0] * senders
    sent_s = []
    for time_s, service_s in zip(produced_s.tolist(), services_s.tolist(), strict=True):
        done_s = max(time_s, free_s[0]) + service_s
        heapreplace(free_s, done_s)
        sent_s.append(done_s)
    return np.array(sent_s)
