"""The flow of publications through AP, M and EP slices on multi-core hosts, each one in virtual time.

    arrival ──► AP slice ──► all M slices ──► EP slice ──► done: its delay is known
                one task     one task each    one task

A task takes one core of its slice's host for a while; tasks wait for a core in the order in which they came, so a host
is one queue with several servers. Tasks of a slice that does not run at the moment wait for it. The loop below handles
a million publications, eighteen tasks each, in a few seconds, so the delays are those of single publications, not
averages of a model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.core.errors import LimitExceeded
from lavant.core.kernels.kernels import borrowing_kernel

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

BUCKET_S = 1.0
"""CPU is measured in intervals of this length."""
WAITING_MAX = 1 << 16
"""Publications that wait for one slice that does not run: more than a minute of the highest rate."""
JITTER = 1024
NOWHERE = -1
_NEXT, _HEAP, _OVERFLOWS = 0, 1, 2


class FlowState(NamedTuple):
    """Everything the loop reads and writes. Slices are in the order AP, M, EP."""

    arrival_s: Doubles
    access: Integers
    exit: Integers
    """Slices of each publication."""
    missing: Integers
    """M slices that have not finished with it."""
    matched_s: Doubles
    delay_s: Doubles
    free_s: Doubles
    """Hosts × cores: when each core is free again."""
    host: Integers
    """Of each slice; NOWHERE while it does not run."""
    cost_s: Doubles
    """Of a task of each slice, on one core."""
    jitter: Doubles
    busy_s: Doubles
    """Slices × intervals: how long cores worked for it."""
    drained_s: Doubles
    """When each slice has finished everything that came to it while it ran."""
    waiting: Integers
    waiting_count: Integers
    heap_s: Doubles
    heap_key: Integers
    """2 · publication, plus 1 on the way to the exit."""
    counters: Integers
    sizes: Integers
    """AP slices, M slices."""


class Flow:
    """The data plane of one trial."""

    def __init__(
        self,
        arrival_s: Doubles,
        *,
        slices: tuple[int, int, int],
        cost_s: Doubles,
        hosts_max: int,
        cores: int,
        hop_s: float,
        seed: int,
    ) -> None:
        random = np.random.default_rng([seed, 3])
        count, total = len(arrival_s), sum(slices)
        access, match, exit = slices
        pieces = int((arrival_s[-1] if count else 0.0) / BUCKET_S) + 120
        jitter = np.exp(0.3 * random.standard_normal(JITTER))
        self._hop_s = hop_s
        self._match = range(access, access + match)
        self._state = FlowState(
            arrival_s=arrival_s,
            access=random.integers(0, access, count),
            exit=access + match + random.integers(0, exit, count),
            missing=np.full(count, match, np.int64),
            matched_s=np.zeros(count),
            delay_s=np.full(count, np.nan),
            free_s=np.zeros((hosts_max, cores)),
            host=np.full(total, NOWHERE, np.int64),
            cost_s=cost_s.copy(),
            jitter=jitter / jitter.mean(),
            busy_s=np.zeros((total, pieces)),
            drained_s=np.zeros(total),
            waiting=np.zeros((total, WAITING_MAX), np.int64),
            waiting_count=np.zeros(total, np.int64),
            heap_s=np.zeros(count + 1),
            heap_key=np.zeros(count + 1, np.int64),
            counters=np.zeros(3, np.int64),
            sizes=np.array([access, match], np.int64),
        )

    @property
    def delay_s(self) -> Doubles:
        """Of each publication; nan while it is in flight."""
        return self._state.delay_s

    @property
    def cost_s(self) -> Doubles:
        """Of a task of each slice; may be changed."""
        return self._state.cost_s

    def advance(self, until_s: float) -> None:
        """Process everything before this time."""
        _advance(self._state, until_s, self._hop_s)
        if self._state.counters[_OVERFLOWS]:
            raise LimitExceeded(f"more than {WAITING_MAX} publications wait for one slice; the load is too high")

    def pause(self, slice: int) -> float:
        """Stop taking tasks; returns when the slice has finished those it took."""
        self._state.host[slice] = NOWHERE
        return float(self._state.drained_s[slice])

    def run(self, slice: int, host: int, now_s: float) -> None:
        """Run the slice on this host from now on, beginning with waiting tasks."""
        if self._state.host[slice] != host:
            self._state.host[slice] = host
            _resume(self._state, slice, now_s, self._hop_s)

    def begin_host(self, host: int, now_s: float) -> None:
        """Reuse the slot of a former host."""
        self._state.free_s[host] = now_s

    def cpu(self, first_s: float, last_s: float) -> Doubles:
        """Mean cores used by each slice over a past interval."""
        pieces = slice(int(first_s / BUCKET_S), int(last_s / BUCKET_S))
        return np.asarray(self._state.busy_s[:, pieces].sum(axis=1) / (last_s - first_s), dtype=np.float64)


@borrowing_kernel
def _advance(state: FlowState, until_s: float, hop_s: float) -> None:
    counters = state.counters
    while True:
        next_s = state.arrival_s[counters[_NEXT]] if counters[_NEXT] < len(state.arrival_s) else np.inf
        first_s = state.heap_s[0] if counters[_HEAP] else np.inf
        if min(next_s, first_s) >= until_s:
            return
        if next_s <= first_s:
            publication = counters[_NEXT]
            counters[_NEXT] += 1
            _access(state, publication, next_s, hop_s)
        else:
            key = _pop(state)
            if key & 1:
                _exit(state, key >> 1, first_s)
            else:
                for slice in range(state.sizes[0], state.sizes[0] + state.sizes[1]):
                    _match(state, slice, key >> 1, first_s, hop_s)


@borrowing_kernel
def _resume(state: FlowState, slice: int, now_s: float, hop_s: float) -> None:
    """Process waiting tasks now, in order."""
    count = state.waiting_count[slice]
    state.waiting_count[slice] = 0
    for place in range(count):
        publication = state.waiting[slice, place]
        if slice < state.sizes[0]:
            _access(state, publication, now_s, hop_s)
        elif slice < state.sizes[0] + state.sizes[1]:
            _match(state, slice, publication, now_s, hop_s)
        else:
            _exit(state, publication, now_s)


@borrowing_kernel
def _access(state: FlowState, publication: int, now_s: float, hop_s: float) -> None:
    done_s = _serve(state, state.access[publication], publication, now_s)
    if done_s >= 0.0:
        _push(state, done_s + hop_s, 2 * publication)


@borrowing_kernel
def _match(state: FlowState, slice: int, publication: int, now_s: float, hop_s: float) -> None:
    done_s = _serve(state, slice, publication, now_s)
    if done_s >= 0.0:
        state.matched_s[publication] = max(state.matched_s[publication], done_s)
        state.missing[publication] -= 1
        if state.missing[publication] == 0:
            _push(state, state.matched_s[publication] + hop_s, 2 * publication + 1)


@borrowing_kernel
def _exit(state: FlowState, publication: int, now_s: float) -> None:
    done_s = _serve(state, state.exit[publication], publication, now_s)
    if done_s >= 0.0:
        state.delay_s[publication] = done_s - state.arrival_s[publication]


@borrowing_kernel
def _serve(state: FlowState, slice: int, publication: int, now_s: float) -> float:
    """When the task is done; negative if its slice does not run, and it waits."""
    host = state.host[slice]
    if host < 0:
        count = state.waiting_count[slice]
        if count == state.waiting.shape[1]:
            state.counters[_OVERFLOWS] += 1
            return -1.0
        state.waiting[slice, count] = publication
        state.waiting_count[slice] = count + 1
        return -1.0
    core = 0
    for other in range(1, state.free_s.shape[1]):
        if state.free_s[host, other] < state.free_s[host, core]:
            core = other
    start_s = max(now_s, state.free_s[host, core])
    took_s = state.cost_s[slice] * state.jitter[(publication * 31 + slice) % len(state.jitter)]
    done_s: float = start_s + took_s
    state.free_s[host, core] = done_s
    state.drained_s[slice] = max(state.drained_s[slice], done_s)
    state.busy_s[slice, min(int(start_s / BUCKET_S), state.busy_s.shape[1] - 1)] += took_s
    return done_s


@borrowing_kernel
def _push(state: FlowState, time_s: float, key: int) -> None:
    heap_s, heap_key = state.heap_s, state.heap_key
    place = state.counters[_HEAP]
    state.counters[_HEAP] += 1
    while place > 0:
        above = (place - 1) >> 1
        if heap_s[above] <= time_s:
            break
        heap_s[place], heap_key[place] = heap_s[above], heap_key[above]
        place = above
    heap_s[place], heap_key[place] = time_s, key


@borrowing_kernel
def _pop(state: FlowState) -> int:
    """Remove the first, and return its key."""
    heap_s, heap_key = state.heap_s, state.heap_key
    first = heap_key[0]
    state.counters[_HEAP] -= 1
    size = state.counters[_HEAP]
    time_s, key = heap_s[size], heap_key[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and heap_s[below + 1] < heap_s[below]:
            below += 1
        if heap_s[below] >= time_s:
            break
        heap_s[place], heap_key[place] = heap_s[below], heap_key[below]
        place = below
    heap_s[place], heap_key[place] = time_s, key
    return int(first)
