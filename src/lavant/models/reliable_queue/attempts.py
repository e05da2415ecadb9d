"""Attempts at one message: how many there are, and when the first one is complete.

A consumer takes a message at time 0 and is done after S. With probability p the delivery is lost. At time V the message
is visible again, unless it was acknowledged before; then it waits for w, and the next attempt begins. An
acknowledgement counts until then: a queue refuses it only when somebody else holds the message.

The time B from the start of an attempt to the first complete one follows from w and S alone:

    P(B > x) = (p + q·P(S > x)) · P(w + B' > x − V)        the last factor is 1 before V

with B' like B. Along a grid, the right side is known when it is needed. A message is attempted 1/(q·P(S ≤ V + w)) times
on average. Where no service is longer than V, both are Eq. 9's: 1/q attempts, and p/q times the timeout.

If the timer starts when the service is over (`TimerStart.SEND`), no attempt overlaps another, and B is a geometric sum.

Services of one message are taken as independent of each other. A message that takes longer than V every time is never
acknowledged in time: it is processed again and again, until its dead-letter limit.
"""

from __future__ import annotations

import numpy as np

from lavant.core.kernels.kernels import kernel
from lavant.models.layout import Floats
from lavant.models.reliable_queue import grids
from lavant.models.reliable_queue.scenario import ServiceTime


def success(service: ServiceTime, visibility_s: float, *, loss: float, delayed: float, wait_s: float) -> float:
    """The probability that an attempt is the last one of its message.

    >>> round(success(ServiceTime(mean_s=1.0), 1.0, loss=0.0, delayed=0.0, wait_s=0.0), 4)  # exponential: 1 − 1/e
    0.6321
    """
    in_time = float(grids.service_cdf(service, np.array([visibility_s]))[0])
    if delayed > 0 and wait_s > 0:
        quantiles = (np.arange(512) + 0.5) / 512
        later = visibility_s - np.log1p(-quantiles) * wait_s / delayed
        in_time = (1.0 - delayed) * in_time + delayed * float(grids.service_cdf(service, later).mean())
    return (1.0 - loss) * in_time


def completion_cdf(
    service_cdf: Floats, step_s: float, *, visibility_s: float, loss: float, delayed: float, wait_s: float
) -> Floats:
    """From the time a message becomes visible to its first complete attempt, if the timer starts with the attempt."""
    decay = np.exp(-step_s * delayed / wait_s) if delayed > 0 and wait_s > 0 else 0.0
    tails = np.empty((2, len(service_cdf)))
    _complete(service_cdf, loss, max(1, round(visibility_s / step_s)), delayed, decay, tails)
    return np.asarray(1.0 - tails[1])


@kernel
def _complete(service_cdf: Floats, loss: float, timeout: int, delayed: float, decay: float, tails: Floats) -> None:
    """P(B > x) and P(w + B > x). The wait is 0, or exponential, so one figure carries it from point to point."""
    waited = 1.0
    for i in range(service_cdf.size):
        tail = loss + (1.0 - loss) * (1.0 - service_cdf[i])
        if i >= timeout:
            tail *= tails[1, i - timeout]
        tails[0, i] = tail
        if i > 0:
            waited = decay * waited + (1.0 - decay) * 0.5 * (tail + tails[0, i - 1])
        tails[1, i] = (1.0 - delayed) * tail + delayed * waited


def repeated(attempt_cdf: Floats, step_s: float, *, visibility_s: float, loss: float) -> Floats:
    """The same, if the timer starts when the attempt is over: attempts one after the other until one is not lost."""
    attempt = grids.transform(attempt_cdf)
    frequencies = np.arange(len(attempt)) * (np.pi / grids.POINTS)
    pause = np.exp(-1j * frequencies * (visibility_s / step_s))
    return grids.inverse((1.0 - loss) * attempt / (1.0 - loss * attempt * pause))
