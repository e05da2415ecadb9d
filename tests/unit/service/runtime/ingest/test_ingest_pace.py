"""When the next batch begins: with senders that send on, and with those that wait for answers."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from lavant.service.runtime.ingest.ingest_pace import (
    GATHER_S_MAX,
    GATHERED_MAX,
    RELAYED_S_MAX,
    IngestPace,
    PacePhase,
)

BATCH_COST_S = 0.0006
COST_S = 0.00001
"""Of a batch, and of each publication in it."""
DURABLE_S = 0.001


class Loop:
    """An event loop in virtual time. Publications arrive, wait, are matched in batches, and are answered later."""

    def __init__(self, *, is_relayed: bool = False) -> None:
        self.is_relayed = is_relayed
        self.now_s = self.used_s = 0.0
        self.pace = IngestPace(clock=lambda: self.now_s, used=lambda: self.used_s)
        self.arrivals: list[tuple[float, bool]] = []
        """Time of each publication to come, and whether its sender waits for the answer and then sends the next."""
        self.done = self.batches = 0
        self.waited_s_max = 0.0

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        waiting: list[tuple[float, bool]] = []
        while self.now_s < until_s and (waiting or self.arrivals):
            while self.arrivals and self.arrivals[0][0] <= self.now_s:
                waiting.append(heapq.heappop(self.arrivals))
            if not waiting:
                self.now_s = self.arrivals[0][0]
                continue
            pause_s = self.pace.pause_s(len(waiting), is_relayed=self.is_relayed)
            if pause_s > 0:
                self.now_s += pause_s
                continue
            self._batch(waiting)
            waiting = []

    def _batch(self, waiting: list[tuple[float, bool]]) -> None:
        self.waited_s_max = max(self.waited_s_max, self.now_s - waiting[0][0])
        self.pace.begin(len(waiting))
        cost_s = BATCH_COST_S + COST_S * len(waiting)
        self.now_s += cost_s
        self.used_s += cost_s
        self.done += len(waiting)
        self.batches += 1
        for _, is_awaited in waiting:
            if is_awaited:
                heapq.heappush(self.arrivals, (self.now_s + DURABLE_S, True))

    def stream(self, rate_per_s: float, seconds: float) -> None:
        """Publications whose sender sends on."""
        for number in range(round(rate_per_s * seconds)):
            heapq.heappush(self.arrivals, (self.now_s + number / rate_per_s, False))

    def clients(self, count: int, apart_s: float = 1e-5) -> None:
        """Senders that wait for each answer, and begin one after the other."""
        for number in range(count):
            heapq.heappush(self.arrivals, (self.now_s + number * apart_s, True))


def rate_at_once(clients: int) -> float:
    """What the clients would reach without any pause."""
    loop = Loop()
    loop.pace.pause_s = lambda waiting, **_: 0.0  # type: ignore[method-assign]
    loop.clients(clients)
    loop.run(1.0)
    return loop.done / loop.now_s


def test_publications_that_come_alone_do_not_wait() -> None:
    loop = Loop()
    loop.stream(200, 2.0)
    loop.run(2.0)
    assert loop.waited_s_max < 1e-9
    assert loop.batches == loop.done == 400


def test_a_stream_gathers_and_costs_less() -> None:
    loop = Loop()
    loop.stream(10_000, 3.0)
    loop.run(3.0)
    assert loop.done >= 29_900
    assert loop.used_s / loop.now_s < 0.35  # all the time without pauses
    assert loop.waited_s_max <= GATHER_S_MAX + 1e-9


def test_frames_of_a_neighbour_that_gathers_do_not_wait_again() -> None:
    loop = Loop(is_relayed=True)
    for number in range(200):
        for _ in range(80):
            heapq.heappush(loop.arrivals, (number * GATHER_S_MAX, False))
    loop.run(2.0)
    assert loop.batches == 200
    assert loop.waited_s_max < 1e-9


def test_frames_of_many_neighbours_gather_for_a_short_time() -> None:
    loop = Loop(is_relayed=True)
    loop.stream(10_000, 3.0)
    loop.run(3.0)
    assert loop.pace._phase is PacePhase.GATHERING
    assert loop.batches < 1500  # one for each would be more than the loop could do
    assert loop.waited_s_max <= RELAYED_S_MAX + 1e-9


def test_senders_that_wait_for_answers_are_hardly_slower() -> None:
    for clients in (4, 16, 64):
        loop = Loop()
        loop.clients(clients)
        loop.run(10.0)
        assert loop.done / loop.now_s > 0.9 * rate_at_once(clients), clients


def test_senders_that_begin_one_after_the_other_are_not_taken_for_a_stream() -> None:
    """The rate of the first batches is low, so that a trial with pauses compares well with it."""
    for apart_s in (0.0005, 0.001, 0.002, 0.005, 0.02):
        loop = Loop()
        loop.clients(16, apart_s)
        loop.run(1.0)
        assert loop.done > 0.75 * rate_at_once(16), apart_s


def test_senders_that_begin_to_wait_for_answers_are_found() -> None:
    loop = Loop()
    loop.stream(10_000, 2.0)
    loop.run(2.0)
    assert loop.pace._phase is PacePhase.GATHERING
    loop.arrivals.clear()
    loop.clients(16)
    loop.run(2.0)  # until the next trial, and a little longer
    done, since_s = loop.done, loop.now_s
    loop.run(4.0)
    assert (loop.done - done) / (loop.now_s - since_s) > 0.9 * rate_at_once(16)


def test_a_server_that_was_idle_learns_anew() -> None:
    loop = Loop()
    loop.stream(10_000, 2.0)
    loop.run(2.0)
    loop.arrivals.clear()
    loop.now_s += 1.0
    loop.clients(16)
    loop.run(0.01)
    assert loop.pace._phase is PacePhase.WARM_UP


def test_as_many_as_a_large_batch_do_not_wait() -> None:
    loop = Loop()
    loop.stream(10_000, 2.0)
    loop.run(1.0)
    assert loop.pace.pause_s(GATHERED_MAX) == 0.0


@given(st.lists(st.tuples(st.floats(1.0, 30_000.0), st.integers(0, 40)), min_size=1, max_size=6))
def test_nothing_waits_longer_than_the_limit(loads: list[tuple[float, int]]) -> None:
    """Beyond the batch before it."""
    loop = Loop()
    for rate_per_s, clients in loads:
        loop.stream(rate_per_s, 0.05)
        loop.clients(clients)
        loop.run(0.05)
    batch_s_max = BATCH_COST_S + COST_S * 30_000 * len(loads)
    assert loop.waited_s_max <= GATHER_S_MAX + batch_s_max
