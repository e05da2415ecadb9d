"""The arrays that the kernel works on.

A job in the network has a *slot*; task n of a job in slot s is *item* s · width + n. An item waits in at most one
queue, so queues are linked lists through one array (`behind`) without a bound of their own. The calendar is a binary
heap of completions (items) and of the next arrival of each job type i (−1 − i).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lavant.models.layout import Floats, NetworkLayout, Numbers
from lavant.simulation.queueing.curves import Curve
from lavant.simulation.queueing.draws import DistributionFamily, parameters

NOTHING = -1
HEAP, FREE, JOBS, RECORDS = range(4)
"""Indexes in `NetworkState.counts`: events in the calendar, first free slot, jobs in the network, records."""
WIDTH_OF_A_RECORD = 3


class NetworkPlan(NamedTuple):
    """What does not change: paths and durations."""

    task_of: Numbers
    """Task of job type i that is its n-th: `task_of[i, n]`."""
    tasks_of: Numbers
    """Number of tasks of job type i."""
    place: Numbers
    """The index of task t in its job."""
    topic: Numbers
    waits_for: Numbers
    """Number of predecessors of task t."""
    after_start: Numbers
    after: Numbers
    """Successors of task t: `after[after_start[t]:after_start[t + 1]]`."""
    arrival_draws: Floats
    service_draws: Floats
    service_s: Floats
    ends_s: Floats
    rates_per_s: Floats


class NetworkState(NamedTuple):
    """What changes. Sums run from the start; subtract two for an interval."""

    now_s: Floats
    counts: Numbers
    heap_s: Floats
    heap_item: Numbers
    step: Numbers
    last_arrival_s: Floats
    job_type: Numbers
    born_s: Floats
    tasks_left: Numbers
    next_free: Numbers
    waits: Numbers
    """Predecessors that an item still waits for."""
    behind: Numbers
    head: Numbers
    tail: Numbers
    servers: Numbers
    busy: Numbers
    there: Numbers
    """Requests at each topic, including those in service."""
    since_s: Floats
    area: Floats
    """Requests at each topic, integrated over time up to `since_s`."""
    busy_s: Floats
    served: Numbers
    service_sums: Floats
    """Service times and their squares, for each topic."""
    arrived: Numbers
    gap_sums: Floats
    """Times between arrivals and their squares, for each job type."""
    finished: Numbers
    response_sums: Floats
    """Response times and their squares, for each job type."""
    records: Floats
    """Job type, arrival and response time of finished jobs; no rows if they are not recorded."""


def plan_of(
    layout: NetworkLayout,
    jobs: int,
    curve: Curve,
    arrival_scvs: list[float],
    topics: list[tuple[float, float]],
    *,
    arrivals: DistributionFamily,
    services: DistributionFamily,
) -> NetworkPlan:
    """`topics` are pairs of service rate and variability."""
    of_job = [np.flatnonzero(layout.task_job == job) for job in range(jobs)]
    width = max(map(len, of_job))
    task_of = np.full((jobs, width), NOTHING)
    place = np.empty_like(layout.task_job)
    for job, tasks in enumerate(of_job):
        task_of[job, : len(tasks)] = tasks
        place[tasks] = np.arange(len(tasks))
    waits_for = np.diff(layout.before_start)
    comes_after = np.repeat(np.arange(len(waits_for)), waits_for)
    order = np.argsort(layout.before, kind="stable")
    after_counts = np.bincount(layout.before, minlength=len(waits_for))
    return NetworkPlan(
        task_of=task_of,
        tasks_of=np.array([len(tasks) for tasks in of_job]),
        place=place,
        topic=layout.task_topic,
        waits_for=waits_for,
        after_start=np.concatenate([[0], np.cumsum(after_counts)]),
        after=comes_after[order],
        arrival_draws=parameters(arrivals, arrival_scvs),
        service_draws=parameters(services, [scv for _, scv in topics]),
        service_s=np.array([1.0 / rate for rate, _ in topics]),
        ends_s=curve.ends_s,
        rates_per_s=curve.rates_per_s,
    )


def empty_state(plan: NetworkPlan, *, slots: int, records: int) -> NetworkState:
    """No jobs, no consumers."""
    jobs, topics = len(plan.tasks_of), len(plan.service_s)
    items = slots * plan.task_of.shape[1]
    next_free = np.arange(1, slots + 1)
    next_free[-1] = NOTHING
    counts = np.zeros(4, np.int64)
    return NetworkState(
        now_s=np.zeros(1),
        counts=counts,
        heap_s=np.zeros(items + jobs),
        heap_item=np.zeros(items + jobs, np.int64),
        step=np.zeros(jobs, np.int64),
        last_arrival_s=np.full(jobs, np.nan),
        job_type=np.zeros(slots, np.int64),
        born_s=np.zeros(slots),
        tasks_left=np.zeros(slots, np.int64),
        next_free=next_free,
        waits=np.zeros(items, np.int64),
        behind=np.full(items, NOTHING),
        head=np.full(topics, NOTHING),
        tail=np.full(topics, NOTHING),
        servers=np.zeros(topics, np.int64),
        busy=np.zeros(topics, np.int64),
        there=np.zeros(topics, np.int64),
        since_s=np.zeros(topics),
        area=np.zeros(topics),
        busy_s=np.zeros(topics),
        served=np.zeros(topics, np.int64),
        service_sums=np.zeros((topics, 2)),
        arrived=np.zeros(jobs, np.int64),
        gap_sums=np.zeros((jobs, 2)),
        finished=np.zeros(jobs, np.int64),
        response_sums=np.zeros((jobs, 2)),
        records=np.zeros((records, WIDTH_OF_A_RECORD)),
    )


def with_more_slots(state: NetworkState) -> NetworkState:
    """Twice as many slots, when none is free; items and calendar keep their numbers."""
    slots = len(state.job_type)
    width = len(state.waits) // slots
    fresh = np.arange(slots + 1, 2 * slots + 1)
    fresh[-1] = NOTHING
    counts = state.counts.copy()
    counts[FREE] = slots
    return state._replace(
        counts=counts,
        heap_s=np.concatenate([state.heap_s, np.zeros(slots * width)]),
        heap_item=np.concatenate([state.heap_item, np.zeros(slots * width, np.int64)]),
        job_type=np.concatenate([state.job_type, np.zeros(slots, np.int64)]),
        born_s=np.concatenate([state.born_s, np.zeros(slots)]),
        tasks_left=np.concatenate([state.tasks_left, np.zeros(slots, np.int64)]),
        next_free=np.concatenate([state.next_free, fresh]),
        waits=np.concatenate([state.waits, np.zeros(slots * width, np.int64)]),
        behind=np.concatenate([state.behind, np.full(slots * width, NOTHING)]),
    )
