"""The event loop: arrivals and completions in the order of time, until a given time or until there is no room.

First come, first served at each topic. A removed consumer finishes its task first. Events at the same instant come in
the order of the heap, which depends only on the past: the same seed gives the same run.
"""

from __future__ import annotations

import math

import numpy as np

from lavant.core.kernels.kernels import borrowing_kernel, inlined_kernel
from lavant.models.layout import Floats, Numbers
from lavant.simulation.queueing.draws import draw
from lavant.simulation.queueing.state import FREE, HEAP, JOBS, NOTHING, RECORDS, NetworkPlan, NetworkState

DONE, NO_SLOT, RECORDS_FULL = range(3)


@borrowing_kernel
def begin(plan: NetworkPlan, state: NetworkState, random: np.random.Generator) -> None:
    """The first arrival of each job type."""
    for i in range(plan.tasks_of.size):
        _push(state, _next_arrival(plan, state, i, 0.0, random), -1 - i)


@borrowing_kernel
def advance(plan: NetworkPlan, state: NetworkState, random: np.random.Generator, until_s: float) -> int:
    """Process everything before `until_s`; or return why it stopped earlier, to be called again after that is fixed."""
    for j in range(state.servers.size):
        _count(state, j, 0)
        while state.busy[j] < state.servers[j] and state.head[j] != NOTHING:
            state.busy[j] += 1
            _serve(plan, state, j, _take(state, j), random)
    while state.counts[HEAP] > 0 and state.heap_s[0] < until_s:
        now_s, item = state.heap_s[0], state.heap_item[0]
        if item < 0:
            if state.counts[FREE] == NOTHING:
                return NO_SLOT
            i = -1 - item
            _replace_first(state, _next_arrival(plan, state, i, now_s, random), item)
            state.now_s[0] = now_s
            _arrive(plan, state, i, random)
        else:
            if state.counts[RECORDS] == state.records.shape[0] > 0:
                return RECORDS_FULL
            state.now_s[0] = now_s
            _complete(plan, state, item, random)
    state.now_s[0] = until_s
    return DONE


@inlined_kernel
def _arrive(plan: NetworkPlan, state: NetworkState, i: int, random: np.random.Generator) -> None:
    now_s = state.now_s[0]
    state.arrived[i] += 1
    gap_s = now_s - state.last_arrival_s[i]
    if gap_s >= 0.0:  # not for the first, whose predecessor is nan
        state.gap_sums[i, 0] += gap_s
        state.gap_sums[i, 1] += gap_s * gap_s
    state.last_arrival_s[i] = now_s
    slot = state.counts[FREE]
    state.counts[FREE] = state.next_free[slot]
    state.counts[JOBS] += 1
    state.job_type[slot] = i
    state.born_s[slot] = now_s
    state.tasks_left[slot] = plan.tasks_of[i]
    first = slot * plan.task_of.shape[1]
    for n in range(plan.tasks_of[i]):
        state.waits[first + n] = plan.waits_for[plan.task_of[i, n]]
    for n in range(plan.tasks_of[i]):
        if state.waits[first + n] == 0:
            _enter(plan, state, plan.topic[plan.task_of[i, n]], first + n, random)


@inlined_kernel
def _complete(plan: NetworkPlan, state: NetworkState, item: int, random: np.random.Generator) -> None:
    width = plan.task_of.shape[1]
    slot = item // width
    i = state.job_type[slot]
    task = plan.task_of[i, item - slot * width]
    j = plan.topic[task]
    _count(state, j, -1)
    if state.busy[j] <= state.servers[j] and state.head[j] != NOTHING:
        _serve_first(plan, state, j, _take(state, j), random)
    else:
        state.busy[j] -= 1
        _pop(state)
    for n in range(plan.after_start[task], plan.after_start[task + 1]):
        following = plan.after[n]
        waiting = slot * width + plan.place[following]
        state.waits[waiting] -= 1
        if state.waits[waiting] == 0:
            _enter(plan, state, plan.topic[following], waiting, random)
    state.tasks_left[slot] -= 1
    if state.tasks_left[slot] == 0:
        _finish(state, slot, i)


@inlined_kernel
def _finish(state: NetworkState, slot: int, i: int) -> None:
    response_s = state.now_s[0] - state.born_s[slot]
    state.finished[i] += 1
    state.response_sums[i, 0] += response_s
    state.response_sums[i, 1] += response_s * response_s
    if state.records.shape[0] > 0:
        row = state.counts[RECORDS]
        state.records[row, 0] = i
        state.records[row, 1] = state.born_s[slot]
        state.records[row, 2] = response_s
        state.counts[RECORDS] += 1
    state.next_free[slot] = state.counts[FREE]
    state.counts[FREE] = slot
    state.counts[JOBS] -= 1


@inlined_kernel
def _enter(plan: NetworkPlan, state: NetworkState, j: int, item: int, random: np.random.Generator) -> None:
    """A task comes to its topic: into service, or to the end of the queue."""
    _count(state, j, 1)
    if state.busy[j] < state.servers[j]:
        state.busy[j] += 1
        _serve(plan, state, j, item, random)
        return
    state.behind[item] = NOTHING
    if state.head[j] == NOTHING:
        state.head[j] = item
    else:
        state.behind[state.tail[j]] = item
    state.tail[j] = item


@inlined_kernel
def _take(state: NetworkState, j: int) -> int:
    item = int(state.head[j])
    state.head[j] = state.behind[item]
    return item


@inlined_kernel
def _serve(plan: NetworkPlan, state: NetworkState, j: int, item: int, random: np.random.Generator) -> None:
    _push(state, _service_end(plan, state, j, random), item)


@inlined_kernel
def _serve_first(plan: NetworkPlan, state: NetworkState, j: int, item: int, random: np.random.Generator) -> None:
    """Replace the completion at the top of the calendar."""
    _replace_first(state, _service_end(plan, state, j, random), item)


@inlined_kernel
def _service_end(plan: NetworkPlan, state: NetworkState, j: int, random: np.random.Generator) -> float:
    service_s = draw(plan.service_draws[j], random) * plan.service_s[j]
    state.served[j] += 1
    state.service_sums[j, 0] += service_s
    state.service_sums[j, 1] += service_s * service_s
    return float(state.now_s[0] + service_s)


@inlined_kernel
def _count(state: NetworkState, j: int, change: int) -> None:
    now_s = state.now_s[0]
    passed_s = now_s - state.since_s[j]
    state.area[j] += state.there[j] * passed_s
    state.busy_s[j] += state.busy[j] * passed_s
    state.there[j] += change
    state.since_s[j] = now_s


@inlined_kernel
def _next_arrival(plan: NetworkPlan, state: NetworkState, i: int, now_s: float, random: np.random.Generator) -> float:
    """Gaps have mean 1 in a time that runs as fast as the rate; this is when that time has passed."""
    work = draw(plan.arrival_draws[i], random)
    step, last = state.step[i], plan.ends_s.size - 1
    while True:
        while step < last and plan.ends_s[step] <= now_s:
            step += 1
        state.step[i] = step
        rate = plan.rates_per_s[step, i]
        end_s = plan.ends_s[step] if step < last else math.inf
        if rate > 0.0 and now_s + work / rate <= end_s:
            return float(now_s + work / rate)
        if step == last:
            return math.inf
        work -= rate * (end_s - now_s)
        now_s = end_s


# ---- the calendar: a binary heap ------------------------------------------------------------------------------------


@inlined_kernel
def _push(state: NetworkState, time_s: float, item: int) -> None:
    place = state.counts[HEAP]
    state.counts[HEAP] += 1
    heap_s, heap_item = state.heap_s, state.heap_item
    while place > 0:
        above = (place - 1) >> 1
        if heap_s[above] <= time_s:
            break
        heap_s[place], heap_item[place] = heap_s[above], heap_item[above]
        place = above
    heap_s[place], heap_item[place] = time_s, item


@inlined_kernel
def _pop(state: NetworkState) -> None:
    last = state.counts[HEAP] - 1
    state.counts[HEAP] = last
    if last > 0:
        _sink(state.heap_s, state.heap_item, last, state.heap_s[last], state.heap_item[last])


@inlined_kernel
def _replace_first(state: NetworkState, time_s: float, item: int) -> None:
    _sink(state.heap_s, state.heap_item, state.counts[HEAP], time_s, item)


@inlined_kernel
def _sink(heap_s: Floats, heap_item: Numbers, size: int, time_s: float, item: int) -> None:
    """Move an event from the top to its position among the first `size`."""
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and heap_s[below + 1] < heap_s[below]:
            below += 1
        if heap_s[below] >= time_s:
            break
        heap_s[place], heap_item[place] = heap_s[below], heap_item[below]
        place = below
    heap_s[place], heap_item[place] = time_s, item
