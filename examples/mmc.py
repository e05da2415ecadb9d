"""The M/M/c queue: the function that `sweep.toml` computes over a grid.

Erlang's formula gives the probability of waiting and the mean response time; beside it, a simulated mean of the same
queue shows what replications and seeds are for.
"""

from __future__ import annotations

import heapq
import random
from typing import Any


def queue(parameters: dict[str, Any], seed: int) -> dict[str, Any]:
    """Formula and simulation for `servers`, `utilisation` and `service_rate_per_s`, over `customers` customers."""
    servers, utilisation = parameters["servers"], parameters["utilisation"]
    service_rate_per_s = parameters["service_rate_per_s"]
    if utilisation >= 1:
        raise ValueError(f"a queue with utilisation {utilisation} grows for ever; keep it below 1")
    arrival_rate_per_s = utilisation * servers * service_rate_per_s
    waiting = erlang_c(servers, utilisation * servers)
    mean_s = 1 / service_rate_per_s + waiting / (servers * service_rate_per_s - arrival_rate_per_s)
    return {
        "waiting_probability": waiting,
        "response_ms": 1000 * mean_s,
        "simulated_response_ms": 1000
        * simulated_mean_s(
            random.Random(seed), servers, arrival_rate_per_s, service_rate_per_s, parameters["customers"]
        ),
    }


def erlang_c(servers: int, load: float) -> float:
    """The probability that an arrival waits (A. K. Erlang, 1917), by the recursion for the blocking probability."""
    blocking = 1.0
    for n in range(1, servers + 1):
        blocking = load * blocking / (n + load * blocking)
    return blocking / (1 - (load / servers) * (1 - blocking))


def simulated_mean_s(
    source: random.Random, servers: int, arrival_rate_per_s: float, service_rate_per_s: float, customers: int
) -> float:
    """The mean response time of the first customers of an empty queue, first come, first served."""
    free_at, now_s, total_s = [0.0] * servers, 0.0, 0.0
    for _ in range(customers):
        now_s += source.expovariate(arrival_rate_per_s)
        done_s = max(now_s, heapq.heappop(free_at)) + source.expovariate(service_rate_per_s)
        heapq.heappush(free_at, done_s)
        total_s += done_s - now_s
    return total_s / customers
