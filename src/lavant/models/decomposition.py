"""Parametric decomposition: the variability of arrivals at each topic, and the number of requests there.

Allocation paper, Appendix A; p is the share of one task in the arrivals of its topic:

    merge    ca²_j  = Σ p · ca²_task                                   (Eq. 4, over the rate of topic j)
    follow   cd²_j  = 1 + (1 − ρ²)(ca²_j − 1) + ρ²/√m · (cs²_j − 1)    (Eq. 5, with ρ no larger than 1)
    split    cd²    = p · cd²_j + (1 − p)(p + (1 − p) · ca²_task)      (Eq. 6)

Departures of a task are arrivals at those after it. A task that joins several takes the mean of their variabilities: it
gets as many arrivals as each of them sends, and the paper has no join.

A job that returns to a topic makes these equations circular. They are linear with factors that sum to less than 1, so
sweeps along the jobs converge; without a cycle, the first sweep is the solution. The loop over allocations is inside
the kernel: a decision compares hundreds of them, a sweep millions.
"""

from __future__ import annotations

import math

from lavant.core.kernels.kernels import borrowing_kernel, kernel
from lavant.models.delay import waiting_requests
from lavant.models.layout import Floats, Numbers


@kernel
def requests(load: float, servers: int, arrival_scv: float, service_scv: float, refined: bool) -> float:
    """L: requests at a station, including those in service; infinite if the load exceeds the servers.

    >>> round(requests(2.0, 3, 1.0, 1.0, False), 6)
    2.888889
    """
    if load >= servers:
        return math.inf
    factor = 0.5 * (arrival_scv + service_scv)
    if refined:
        factor *= correction(load / servers, servers, arrival_scv, service_scv)
    return load + factor * waiting_requests(load, servers)


@kernel
def correction(utilisation: float, servers: int, arrival_scv: float, service_scv: float) -> float:
    """Whitt's φ: the factor by which the mean wait differs from the one given by the sum of the variabilities alone."""
    mean_scv = 0.5 * (arrival_scv + service_scv)
    if utilisation <= 0.0 or mean_scv <= 0.0:
        return 1.0
    idle, m = 1.0 - utilisation, float(servers)
    gamma = min(0.24, idle * (m - 1.0) * (math.sqrt(4.0 + 5.0 * m) - 2.0) / (16.0 * m * utilisation))
    phi1 = 1.0 + gamma
    phi3 = (1.0 - 4.0 * gamma) * math.exp(-2.0 * idle / (3.0 * utilisation))
    psi = 1.0 if mean_scv >= 1.0 else min(1.0, 0.5 * (phi1 + phi3)) ** (2.0 * (1.0 - mean_scv))
    if arrival_scv >= service_scv:
        share = 4.0 * (arrival_scv - service_scv) / (4.0 * arrival_scv - 3.0 * service_scv)
        return share * phi1 + (1.0 - share) * psi
    share = 0.25 * (service_scv - arrival_scv) / mean_scv
    return share * phi3 + (1.0 - share) * psi


SWEEPS_MAX = 200
TOLERANCE = 1e-12
"""Relative."""
ROOM = 7
"""Rows of scratch space."""


@borrowing_kernel
def requests_of_all(
    task_job: Numbers,
    task_topic: Numbers,
    before_start: Numbers,
    before: Numbers,
    arrival_rate: Floats,
    arrival_scv: Floats,
    service_rate: Floats,
    service_scv: Floats,
    consumers: Numbers,
    refined: bool,
    room: Floats,
    topic_scv: Floats,
    found: Floats,
) -> None:
    """L of each topic into `found`, ca² into `topic_scv`, for each row of consumers.

    Rates have one row each or one for all. `room` is scratch space, one row per figure kept while a case is computed.
    """
    arriving, share, departing = room[0], room[1], room[2]
    rate, guess, kept, added = room[3], room[4], room[5], room[6]
    loads_differ, services_differ = arrival_rate.shape[0] > 1, service_rate.shape[0] > 1
    for row in range(consumers.shape[0]):
        if row == 0 or loads_differ:
            _merge(task_job, task_topic, arrival_rate[row], arrival_scv, rate, share, guess)
        at = row if services_differ else 0
        for j in range(consumers.shape[1]):  # Eq. 5 as cd² = kept · ca² + added
            servers = consumers[row, j]
            busy = min(1.0, rate[j] / (service_rate[at, j] * servers)) ** 2
            kept[j] = 1.0 - busy
            added[j] = busy + busy / math.sqrt(servers) * (service_scv[j] - 1.0)
            topic_scv[row, j] = guess[j]
        for t in range(task_job.size):
            arriving[t] = arrival_scv[task_job[t]]
        for _ in range(SWEEPS_MAX):
            if _sweep(task_topic, before_start, before, share, kept, added, arriving, departing, topic_scv[row]):
                break
        for j in range(consumers.shape[1]):
            load = rate[j] / service_rate[at, j]
            found[row, j] = requests(load, consumers[row, j], topic_scv[row, j], service_scv[j], refined)


@borrowing_kernel
def _merge(
    task_job: Numbers,
    task_topic: Numbers,
    arrival_rate: Floats,
    arrival_scv: Floats,
    rate: Floats,
    share: Floats,
    guess: Floats,
) -> None:
    """λ̃ of each topic, p of each task, and a first guess of ca²: each task as variable as the arrivals of its job."""
    rate[:] = 0.0
    guess[:] = 0.0
    for t in range(task_job.size):
        rate[task_topic[t]] += arrival_rate[task_job[t]]
    for t in range(task_job.size):
        share[t] = arrival_rate[task_job[t]] / rate[task_topic[t]]
        guess[task_topic[t]] += share[t] * arrival_scv[task_job[t]]


@borrowing_kernel
def _sweep(
    task_topic: Numbers,
    before_start: Numbers,
    before: Numbers,
    share: Floats,
    kept: Floats,
    added: Floats,
    arriving: Floats,
    departing: Floats,
    topic_scv: Floats,
) -> bool:
    """Follow every job once; return whether it has converged."""
    settled = True
    for t in range(task_topic.size):
        j, p = task_topic[t], share[t]
        first, last = before_start[t], before_start[t + 1]
        if last > first:
            scv = 0.0
            for b in range(first, last):
                scv += departing[before[b]]
            difference = scv / (last - first) - arriving[t]
            arriving[t] += difference
            topic_scv[j] += p * difference
            settled = settled and abs(difference) <= TOLERANCE * (1.0 + arriving[t])
        departing[t] = p * (kept[j] * topic_scv[j] + added[j]) + (1.0 - p) * (p + (1.0 - p) * arriving[t])
    return settled
