"""Attempts at one message: how many there are, and when the first one is complete.

A consumer takes a message at time 0 and is done after S. With probability p the delivery is lost. At time V the message
is visible again, unless it was acknowledged before; then it waits for w, and the next attempt begins. An
acknowledgement counts until then: a queue refuses it only when somebody else holds the message.

A message that is only slow still keeps its consumer, so it waits for one of the others: for w', which is longer than w,
and endless where there are no others. The time B from the start of an attempt to the first complete one follows from
the waits and S alone:

    P(B > x) = p·P(w + B' > x − V) + q·P(S > x)·P(w' + B' > x − V)        the factors with V are 1 before V

with B' like B. Along a grid, the right side is known when it is needed. Over a link with delay D, a message is
attempted 1/(q·P(S + 2·D ≤ V + w')) times on average: it goes there, and its acknowledgement comes back. Where no
service is longer than V − 2·D, both are Eq. 9's: 1/q attempts, and p/q times the timeout.

If the timer starts when the service is over (`TimerStart.SEND`), no attempt overlaps another, and B is a geometric sum.

Services of one message are taken as independent of each other. A message that takes longer than V every time is never
acknowledged in time: it is processed again and again, until its dead-letter limit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np

from lavant.core.kernels.kernels import kernel
from lavant.models.layout import Floats
from lavant.models.reliable_queue import grids
from lavant.models.reliable_queue.scenario import ServiceTime


def all_attempts(service: ServiceTime, *, attempts: float) -> ServiceTime:
    """The services of all attempts at a message together: a geometric sum.

    >>> all_attempts(ServiceTime(mean_s=1.0, scv=0.0), attempts=2.0)
    ServiceTime(mean_s=2.0, scv=0.5, family=<ServiceFamily.GAMMA: 'gamma'>)
    """
    scv = service.scv + (1.0 - 1.0 / attempts) * (1.0 - service.scv)
    return msgspec.structs.replace(service, mean_s=attempts * service.mean_s, scv=scv)


class Wait(NamedTuple):
    """No wait, or with some probability an exponential one."""

    probability: float
    mean_s: float
    """Of all."""

    def decay(self, step_s: float) -> float:
        """By how much the probability of a longer wait decreases in a step."""
        return math.exp(-step_s * self.probability / self.mean_s) if self.probability > 0 and self.mean_s > 0 else 0.0


NO_WAIT, ENDLESS = Wait(0.0, 0.0), Wait(1.0, math.inf)


def wait_for_others(wait: Wait, consumers: int, utilisation: float) -> Wait:
    """w', from the wait w for any consumer: all others are busy more often, and are fewer.

    At M/M/m, P(m − 1 or more) is P(m or more)/ρ, and each of those ahead takes m/(m − 1) times as long to begin.

    >>> wait_for_others(Wait(0.25, 1.0), 2, 0.5), wait_for_others(Wait(0.5, 1.0), 1, 0.5)
    (Wait(probability=0.5, mean_s=4.0), Wait(probability=1.0, mean_s=inf))
    """
    if consumers == 1:
        return ENDLESS
    if wait.probability <= 0:
        return NO_WAIT
    probability = min(1.0, wait.probability / utilisation)
    return Wait(probability, probability * wait.mean_s / wait.probability * consumers / (consumers - 1))


def success(service: ServiceTime, left_s: float, *, loss: float, again: Wait) -> float:
    """The probability that an attempt is the last one of its message; `left_s` is V − 2·D, and `again` is w'.

    >>> round(success(ServiceTime(mean_s=1.0), 1.0, loss=0.0, again=NO_WAIT), 4)  # exponential: 1 − 1/e
    0.6321
    >>> success(ServiceTime(mean_s=1.0), 1.0, loss=0.25, again=ENDLESS)
    0.75
    """
    in_time = float(grids.service_cdf(service, np.array([max(0.0, left_s)]))[0])
    if again.probability > 0 and again.mean_s > 0:
        quantiles = (np.arange(512) + 0.5) / 512
        later = np.maximum(0.0, left_s - np.log1p(-quantiles) * again.mean_s / again.probability)
        waited = float(grids.service_cdf(service, later).mean())
        in_time = (1.0 - again.probability) * in_time + again.probability * waited
    return (1.0 - loss) * in_time


def completion_cdf(
    service_cdf: Floats, step_s: float, *, visibility_s: float, loss: float, wait: Wait, again: Wait
) -> Floats:
    """From the time a message becomes visible to its first complete attempt, if the timer starts with the attempt."""
    tails = np.empty((3, len(service_cdf)))
    waits = (wait.probability, wait.decay(step_s), again.probability, again.decay(step_s))
    _complete(service_cdf, loss, max(1, round(visibility_s / step_s)), waits, tails)
    return np.asarray(1.0 - tails[1])


@kernel
def _complete(
    service_cdf: Floats, loss: float, timeout: int, waits: tuple[float, float, float, float], tails: Floats
) -> None:
    """P(B > x), P(w + B > x) and P(w' + B > x). Waits are 0, or exponential: one figure carries each along the grid."""
    delayed, decay, delayed_again, decay_again = waits
    waited = waited_again = 1.0
    for i in range(service_cdf.size):
        lost, slow = loss, (1.0 - loss) * (1.0 - service_cdf[i])
        if i >= timeout:
            lost *= tails[1, i - timeout]
            slow *= tails[2, i - timeout]
        tail = lost + slow
        tails[0, i] = tail
        if i > 0:
            between = 0.5 * (tail + tails[0, i - 1])
            waited = decay * waited + (1.0 - decay) * between
            waited_again = decay_again * waited_again + (1.0 - decay_again) * between
        tails[1, i] = (1.0 - delayed) * tail + delayed * waited
        tails[2, i] = (1.0 - delayed_again) * tail + delayed_again * waited_again


def repeated(attempt_cdf: Floats, step_s: float, *, visibility_s: float, loss: float) -> Floats:
    """The same, if the timer starts when the attempt is over: attempts one after the other until one is not lost."""
    attempt = grids.transform(attempt_cdf)
    frequencies = np.arange(len(attempt)) * (np.pi / grids.POINTS)
    pause = np.exp(-1j * frequencies * (visibility_s / step_s))
    return grids.inverse((1.0 - loss) * attempt / (1.0 - loss * attempt * pause))
