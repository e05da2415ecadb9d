"""The loop over publications against a slow one in a few lines, and moves against the paper's Table I."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lavant.control.placement.values import Move, PlacementPlan
from lavant.core.decisions import Decision
from lavant.core.ids import HostId, SliceId
from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.placement.cluster import ClusterConfig
from lavant.simulation.placement.flow import Flow
from lavant.simulation.placement.migrations import MigrationDriver

SLICES = (2, 3, 2)
HOP_S = 0.001


def make_flow(arrival_s: list[float], seed: int, cores: int) -> Flow:
    cost_s = np.linspace(0.05, 0.2, sum(SLICES))
    return Flow(np.array(arrival_s), slices=SLICES, cost_s=cost_s, hosts_max=3, cores=cores, hop_s=HOP_S, seed=seed)


def slow_delays(flow: Flow, host: list[int], cores: int) -> list[float]:
    """The same for slices that do not move: an agenda of arrivals, and for each host when its cores are free."""
    state = flow._state
    free_s = {place: [0.0] * cores for place in host}
    agenda = [(float(time_s), 0, number) for number, time_s in enumerate(state.arrival_s)]
    heapq.heapify(agenda)
    delays = [0.0] * len(agenda)

    def serve(slice: int, number: int, now_s: float) -> float:
        cost_s = state.cost_s[slice] * state.jitter[(number * 31 + slice) % len(state.jitter)]
        start_s = max(now_s, heapq.heappop(free_s[host[slice]]))
        heapq.heappush(free_s[host[slice]], start_s + cost_s)
        return float(start_s + cost_s)

    while agenda:
        now_s, stage, number = heapq.heappop(agenda)
        if stage == 0:
            heapq.heappush(agenda, (serve(int(state.access[number]), number, now_s) + HOP_S, 1, number))
        elif stage == 1:
            done_s = max(serve(SLICES[0] + place, number, now_s) for place in range(SLICES[1]))
            heapq.heappush(agenda, (done_s + HOP_S, 2, number))
        else:
            delays[number] = serve(int(state.exit[number]), number, now_s) - float(state.arrival_s[number])
    return delays


@settings(max_examples=40, deadline=None)
@given(
    gaps=st.lists(st.floats(0.001, 0.3), min_size=1, max_size=40),
    host=st.lists(st.integers(0, 2), min_size=sum(SLICES), max_size=sum(SLICES)),
    cores=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_delays_are_those_of_a_slow_simulation(gaps: list[float], host: list[int], cores: int, seed: int) -> None:
    flow = make_flow(np.cumsum(gaps).tolist(), seed, cores)
    for slice, place in enumerate(host):
        flow.run(slice, place, 0.0)
    for until_s in (0.5, 1.0, np.inf):  # in pieces as well as at once
        flow.advance(until_s)
    assert flow.delay_s.tolist() == pytest.approx(slow_delays(flow, host, cores))


def test_what_comes_to_a_slice_that_pauses_is_served_when_it_runs_again() -> None:
    flow = make_flow([0.1 * number for number in range(1, 30)], 1, 4)
    for slice in range(sum(SLICES)):
        flow.run(slice, 0, 0.0)
    flow.advance(1.0)
    drained_s = flow.pause(3)
    assert 0.9 < drained_s < 2.0
    flow.advance(2.5)
    before = np.count_nonzero(~np.isnan(flow.delay_s))
    flow.run(3, 1, 2.5)
    flow.advance(np.inf)
    assert before < 12
    assert not np.isnan(flow.delay_s).any()
    assert flow.delay_s[15] > 2.5 - 1.6


def test_cpu_is_what_cores_worked() -> None:
    flow = make_flow([0.5], 1, 1)
    for slice in range(sum(SLICES)):
        flow.run(slice, 0, 0.0)
    flow.advance(np.inf)
    used_s = flow.cpu(0.0, 10.0) * 10.0
    assert np.count_nonzero(used_s) == 1 + SLICES[1] + 1
    assert used_s.sum() == pytest.approx(flow.delay_s[0] - 2 * HOP_S)


@pytest.mark.parametrize(("slice", "paper_ms"), [("AP:1", 232), ("M:1", 1497), ("EP:1", 275)])
def test_moves_take_as_long_as_in_table_1(slice: str, paper_ms: int) -> None:
    config = ClusterConfig()
    layout, calendar = config.layout, Calendar()
    a, b = HostId("a"), HostId("b")
    flow = Flow(np.empty(0), slices=(8, 16, 8), cost_s=np.full(32, 0.01), hosts_max=2, cores=8, hop_s=HOP_S, seed=1)
    conductor = MigrationDriver(config, flow, calendar, {s: b if s == "AP:0" else a for s in layout.slices})
    move = Move(slice=SliceId(slice), source=a, destination=b)
    conductor.start(PlacementPlan(decision=Decision(loop="placement", action="", reason=""), moves=(move,)))
    calendar.run(until_us=60_000_000, events_max=10_000)
    (pause,) = conductor.pauses
    assert 1000 * pause.end_s == pytest.approx(paper_ms, rel=0.02)
    assert conductor.is_idle
    assert conductor.placement.host_of[SliceId(slice)] == b
