"""Waiting at M/M/m and GI/G/m stations: its probability, the requests that wait, and the variability of the wait.

A. K. Erlang, 1917, for M/M/m. Eq. 1 of the allocation paper sums powers over factorials, which overflow from m = 171
on; the recursion for Erlang's loss probability gives the same results for any m.

W. Whitt, "Approximations for the GI/G/m queue", 1993, Section 3 (π₁ to π₆, γ, z), and "The queueing network analyzer",
Bell System Technical Journal 62(9), 1983, Eqs. 53 and 54 for the variability, which he derives for one server.
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


MANY_SERVERS = 7
"""Above it, low variability of arrivals needs a correction of its own."""


def delay_probability(load: float, servers: int, arrival_scv: float, service_scv: float) -> float:
    """The share of requests that find all servers busy.

    >>> round(delay_probability(3.6, 4, 0.25, 1.0), 2), round(delay_probability(3.6, 4, 1.0, 0.5), 2)
    (0.7, 0.79)
    """
    if load >= servers:
        return 1.0
    if arrival_scv + service_scv <= 0:
        return 0.0
    rho = load / servers
    usual = _few_servers(rho, servers, arrival_scv, service_scv, waiting_probability(load, servers))
    if servers < MANY_SERVERS or arrival_scv >= 1:
        return min(1.0, usual)
    z = (arrival_scv + service_scv) / (1.0 + service_scv)
    gamma = (servers - load - 0.5) / math.sqrt(load * z)
    weight = min(1.0, max(0.0, 2.0 * (1.0 - arrival_scv) * (gamma - 0.5))) if gamma < 1 else 1.0
    regular = arrival_scv * usual + (1.0 - arrival_scv) * _above(gamma)
    return min(1.0, weight * regular + (1.0 - weight) * usual)


def delay_scv(utilisation: float, service_scv: float) -> float:
    """Squared coefficient of variation of positive waits; 1 where a station is nearly full.

    >>> delay_scv(0.5, 1.0), delay_scv(1.0, 0.2)
    (1.0, 1.0)
    """
    if service_scv >= 1:
        third = 3.0 * service_scv * (1.0 + service_scv)
    else:
        third = (2.0 * service_scv + 1.0) * (service_scv + 1.0)
    rho = min(1.0, utilisation)
    return 2.0 * rho - 1.0 + 4.0 * (1.0 - rho) * third / (3.0 * (service_scv + 1.0) ** 2)


def _few_servers(rho: float, servers: int, arrival_scv: float, service_scv: float, erlang: float) -> float:
    room = (1.0 - rho) * math.sqrt(servers)
    heavy = _above(room * (1.0 + service_scv) / (arrival_scv + service_scv)) / _above(room) * erlang
    light = _above(room * 2.0 / (1.0 + arrival_scv)) / _above(room) * erlang
    return rho**2 * min(1.0, heavy) + (1.0 - rho**2) * min(1.0, light)


def _above(x: float) -> float:
    """1 − Φ(x), never 0: it is a denominator."""
    return max(0.5 * math.erfc(x / math.sqrt(2.0)), 1e-300)
