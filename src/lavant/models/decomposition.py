"""Parametric decomposition: how variable arrivals at each topic are, and how many requests are there.

Allocation paper, Appendix A; p is the share of one task in the arrivals of its topic:

    merge    ca²_j  = Σ p · ca²_task                                   (Eq. 4, over the rate of topic j)
    follow   cd²_j  = 1 + (1 − ρ²)(ca²_j − 1) + ρ²/√m · (cs²_j − 1)    (Eq. 5, with ρ no larger than 1)
    split    cd²    = p · cd²_j + (1 − p)(p + (1 − p) · ca²_task)      (Eq. 6)

The stream that leaves a task arrives at those after it. A task that joins several takes the mean of their
variabilities: it gets as many arrivals as each of them sends, and the paper has no join.

A job that comes back to a topic makes these equations circular. They are linear with factors that sum to less than 1,
so sweeps along the jobs converge; without a way back, the first is the solution. The loop over allocations is inside
of the kernel: a decision compares hundreds of them, a sweep millions.
"""

from __future__ import annotations

import math

from lavant.core.kernels import kernel
from lavant.models.layout import Floats, Numbers
from lavant.models.station import requests

SWEEPS_MAX = 200
TOLERANCE = 1e-12
"""Relative."""
ROOM = 6
"""Lines of scratch space."""


@kernel
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
    """L of each topic into `found`, ca² into `topic_scv`, for each row of rates, variabilities and consumers.

    `room` is scratch space, a line of it for each figure that is kept while a row is computed.
    """
    tasks, topics = task_job.size, consumers.shape[1]
    arriving, share, departing = room[0], room[1], room[2]
    rate, kept, added = room[3], room[4], room[5]
    for row in range(consumers.shape[0]):
        for j in range(topics):
            topic_scv[row, j] = 0.0
            rate[j] = 0.0
        for t in range(tasks):
            rate[task_topic[t]] += arrival_rate[row, task_job[t]]
        for j in range(topics):  # Eq. 5 as cd² = kept · ca² + added
            servers = consumers[row, j]
            busy = min(1.0, rate[j] / (service_rate[row, j] * servers)) ** 2
            kept[j] = 1.0 - busy
            added[j] = busy + busy / math.sqrt(servers) * (service_scv[row, j] - 1.0)
        for t in range(tasks):  # a first guess: each task as variable as the job's arrivals
            j, i = task_topic[t], task_job[t]
            share[t] = arrival_rate[row, i] / rate[j]
            arriving[t] = arrival_scv[row, i]
            topic_scv[row, j] += share[t] * arriving[t]
        for _ in range(SWEEPS_MAX):
            changed = 0.0
            for t in range(tasks):
                j, p = task_topic[t], share[t]
                first, last = before_start[t], before_start[t + 1]
                if last > first:
                    scv = 0.0
                    for b in range(first, last):
                        scv += departing[before[b]]
                    difference = scv / (last - first) - arriving[t]
                    arriving[t] += difference
                    topic_scv[row, j] += p * difference
                    changed = max(changed, abs(difference) / (1.0 + arriving[t]))
                departing[t] = p * (kept[j] * topic_scv[row, j] + added[j]) + (1.0 - p) * (p + (1.0 - p) * arriving[t])
            if changed <= TOLERANCE:
                break
        for j in range(topics):
            load = rate[j] / service_rate[row, j]
            found[row, j] = requests(load, consumers[row, j], topic_scv[row, j], service_scv[row, j], refined)
