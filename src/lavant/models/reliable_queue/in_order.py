"""In-order delivery: messages start in the order in which they were produced. The paper simulates it only.

**Release.** Senders work in parallel, so a message may be ready before an older one; it is released when all older ones
are. Senders begin in order, so these are the j messages in service when its own service S began. With X the rest of
each of their services, it is released after max(S, X₁, …, X_j). For exponential times that is H_{j+1}/μ₁ on average,
and the mean over j (an arrival sees the station as it is over time) is exact; for others, X is the residual time.
After arrivals that are no Poisson stream, a message that finds a sender free finds fewer or more older ones in service:
`bursts.later_release_s` adds the difference.

**Waiting for a consumer.** A message releases those behind it that are ready, so messages come in bursts: see
`bursts`.

**Error.** The mean delivery time was within 5 % of simulations between the limits of `limits.CHECKED`;
`docs/queue-models.md` has the figures, and `tests/models/in_order_fit.py` measures them. The 95th percentile was
4 % off on average, below 15 % in 95 of 100 cases, and 34 % at worst.

`tests/models/test_reliable_queue.py` repeats some with the queue machine.
"""

from __future__ import annotations

import math

import numpy as np

from lavant.models.layout import Floats

_NEGLIGIBLE = 1e-12


def in_service(load: float, servers: int) -> Floats:
    """The probabilities that 0, 1, … of the other servers are busy when a service begins, at an M/M/m station.

    >>> in_service(1.0, 2).round(4).tolist()
    [0.3333, 0.6667]
    """
    log = np.arange(servers) * math.log(load) - np.cumsum(np.log(np.maximum(1, np.arange(servers))))
    below = np.exp(log - log.max())
    at_full = math.exp(servers * math.log(load) - math.lgamma(servers + 1) - log.max()) / (1.0 - load / servers)
    found = np.append(below[:-1], below[-1] + at_full)
    return np.asarray(found / found.sum())


def release_cdf(service_cdf: Floats, residual_cdf: Floats, busy: Floats) -> Floats:
    """From the start of a service to the release of its message."""
    return np.asarray(service_cdf * _generating(busy, residual_cdf))


def delaying(load: float, servers: int) -> float:
    """Older messages in service when a service begins, in relation to those there would be with a server for each.

    >>> delaying(0.5, 1), round(delaying(0.5, 100), 6)
    (0.0, 1.0)
    """
    return min(1.0, float(in_service(load, servers) @ np.arange(servers)) / load)


def _generating(probabilities: Floats, at: Floats) -> Floats:
    """Σ_j P(j)·x^j, by Horner."""
    found = np.zeros_like(at)
    for probability in probabilities[: np.flatnonzero(probabilities > _NEGLIGIBLE)[-1] + 1][::-1]:
        found = found * at + probability
    return found
