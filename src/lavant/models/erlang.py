"""The M/M/m queue: probability of waiting, and number of requests (A. K. Erlang, 1917).

Eq. 1 of the allocation paper sums powers over factorials, which overflow from m = 171 on. The recursion for Erlang's
loss probability gives the same results for any m.
"""

from __future__ import annotations

import math

from lavant.core.kernels.kernels import kernel


@kernel
def waiting_probability(load: float, servers: int) -> float:
    """Erlang C: the share of arrivals that find all servers busy; 1 if the load exceeds them.

    >>> round(waiting_probability(2.0, 3), 6)
    0.444444
    """
    if load >= servers:
        return 1.0
    blocking = 1.0
    for n in range(1, servers + 1):
        blocking = load * blocking / (n + load * blocking)
    return blocking / (1.0 - load / servers * (1.0 - blocking))


@kernel
def waiting_requests(load: float, servers: int) -> float:
    """Requests in the queue of an M/M/m station, without those in service; infinite from a load of m on.

    >>> round(waiting_requests(2.0, 3), 6), waiting_requests(3.0, 3)
    (0.888889, inf)
    """
    if load >= servers:
        return math.inf
    return waiting_probability(load, servers) * load / (servers - load)
