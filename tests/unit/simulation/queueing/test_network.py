"""The simulation of networks, against a plain one in Python, and against what must always hold."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from tests.models.networks import case_study, fork_and_join, random_allocation, random_network

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.models.network import ModelJobType, ModelTask, Network, Topic
from lavant.simulation.queueing import DistributionFamily, NetworkSimulation, simulate, simulation, steps


def constant_times(network: Network) -> Network:
    """The same network without any chance in it."""
    return Network(
        topics=tuple(
            Topic(name=t.name, service_rate_per_s=t.service_rate_per_s, service_scv=0.0) for t in network.topics
        ),
        jobs=tuple(
            ModelJobType(name=j.name, arrival_rate_per_s=j.arrival_rate_per_s, arrival_scv=0.0, tasks=j.tasks)
            for j in network.jobs
        ),
    )


def plain_responses(network: Network, consumers: list[int], until_s: float) -> list[float]:
    """First come, first served with constant times, as an event loop over dicts."""
    free = dict(zip(network.topic_names, consumers, strict=True))
    service_s = {topic.name: 1 / topic.service_rate_per_s for topic in network.topics}
    queues: dict[str, list[tuple[int, ModelTask]]] = {name: [] for name in network.topic_names}
    jobs: list[tuple[ModelJobType, float, set[str]]] = []
    calendar: list[tuple[float, int, str, object]] = []
    count, responses = 0, []

    def enter(now_s: float, number: int, task: ModelTask) -> None:
        nonlocal count
        if free[task.topic]:
            free[task.topic] -= 1
            count += 1
            heapq.heappush(calendar, (now_s + service_s[task.topic], count, "done", (number, task)))
        else:
            queues[task.topic].append((number, task))

    for job in network.jobs:
        times = np.cumsum(np.full(int(until_s * job.arrival_rate_per_s) + 1, 1 / job.arrival_rate_per_s))
        for time_s in times:
            count += 1
            heapq.heappush(calendar, (float(time_s), count, "arrival", job))
    while calendar and calendar[0][0] < until_s:
        now_s, _, kind, what = heapq.heappop(calendar)
        if kind == "arrival":
            assert isinstance(what, ModelJobType)
            jobs.append((what, now_s, set()))
            for task in what.tasks:
                if not task.after:
                    enter(now_s, len(jobs) - 1, task)
            continue
        assert isinstance(what, tuple)
        number, task = what
        free[task.topic] += 1
        if queues[task.topic]:
            enter(now_s, *queues[task.topic].pop(0))
        job, born_s, done = jobs[number]
        done.add(task.name)
        for following in job.tasks:
            if task.name in following.after and done.issuperset(following.after):
                enter(now_s, number, following)
        if len(done) == len(job.tasks):
            responses.append(now_s - born_s)
    return responses


@pytest.mark.parametrize("seed", range(12))
def test_with_constant_times_it_does_what_a_plain_event_loop_does(seed: int) -> None:
    network = constant_times(fork_and_join(0.97) if seed == 0 else random_network(seed))
    consumers = random_allocation(network, seed)
    run = NetworkSimulation(network, consumers, seed=1, record=True)
    run.advance(400.0)
    expected = plain_responses(network, consumers, 400.0)
    found = run.take_finished().response_s
    assert sorted(found.tolist()) == pytest.approx(sorted(expected), abs=1e-6)
    assert len(found) > 50


def test_the_same_seed_gives_the_same_run_in_one_go_or_in_pieces() -> None:
    runs = []
    for pieces in (1, 7, 500):
        run = NetworkSimulation(case_study(), (2, 2, 1, 4), seed=9, record=True)
        for piece in range(1, pieces + 1):
            run.advance(100_000.0 * piece / pieces)
        runs.append(run.take_finished())
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], other, strict=True))
    different = NetworkSimulation(case_study(), (2, 2, 1, 4), seed=10, record=True)
    different.advance(100_000.0)
    assert different.take_finished().response_s.sum() != runs[0].response_s.sum()


def test_nothing_is_lost_and_little_s_law_holds_on_the_path_itself() -> None:
    run = NetworkSimulation(case_study(), (2, 2, 1, 4), seed=4, record=True)
    run.advance(500_000.0)
    counted = run.counters()
    assert counted.arrived.sum() == counted.finished.sum() + run.jobs
    assert run.jobs == run.requests.sum()  # routes: each job is at one topic
    in_network = counted.area.sum()
    assert counted.response_sums[:, 0].sum() == pytest.approx(in_network, rel=1e-3)
    finished = run.take_finished()
    assert len(finished.job) == counted.finished.sum()
    assert finished.response_s.sum() == pytest.approx(counted.response_sums[:, 0].sum())
    utilisation = counted.busy_s / counted.time_s
    assert utilisation == pytest.approx(case_study().offered_load, rel=0.02)


@pytest.mark.parametrize(
    ("family", "scv"),
    [
        (f, scv)
        for f in DistributionFamily
        for scv in (0.0, 0.3, 1.0, 2.5)
        if scv != 0.3 or f is not DistributionFamily.HYPEREXPONENTIAL
    ],
)
def test_times_have_the_moments_that_were_asked_for(family: DistributionFamily, scv: float) -> None:
    network = Network(
        topics=(Topic(name="A", service_rate_per_s=4.0, service_scv=scv),),
        jobs=(ModelJobType.along(["A"], name="1", arrival_rate_per_s=2.0, arrival_scv=scv),),
    )
    run = NetworkSimulation(network, [2], seed=11, arrivals=family, services=family)
    run.advance(100_000.0)
    counted = run.counters()
    for count, sums, mean in (
        (counted.arrived[0] - 1, counted.gap_sums[0], 0.5),
        (counted.served[0], counted.service_sums[0], 0.25),
    ):
        assert sums[0] / count == pytest.approx(mean, rel=0.02)
        assert count * sums[1] / sums[0] ** 2 - 1 == pytest.approx(scv, abs=0.02 + 0.06 * scv)


def test_arrivals_follow_a_curve() -> None:
    network = Network(
        topics=(Topic(name="A", service_rate_per_s=100.0),),
        jobs=(ModelJobType.along(["A"], name="1", arrival_rate_per_s=1.0, arrival_scv=0.0),),
    )
    run = NetworkSimulation(network, [1], seed=1, curve=steps([100.5, 150.0, 300.0], [[1.0], [0.0], [4.0]]))
    seen = []
    for time_s in (100.1, 149.9, 150.12, 150.13, 150.38, 300.1):
        run.advance(time_s)
        seen.append(int(run.counters().arrived[0]))
    assert seen == [100, 100, 100, 101, 102, 700]  # half of a gap was over when arrivals stopped, half is left
    run.advance(400.0)
    assert run.counters().arrived[0] == pytest.approx(1100, abs=1)  # the last rate goes on


def test_consumers_that_go_finish_their_task_and_those_that_come_take_what_waits() -> None:
    network = Network(
        topics=(Topic(name="A", service_rate_per_s=0.1, service_scv=0.0),),
        jobs=(ModelJobType.along(["A"], name="1", arrival_rate_per_s=1.0, arrival_scv=0.0),),
    )
    run = NetworkSimulation(network, [3], seed=1, record=True)
    run.advance(4.5)  # three in service, one waits
    run.set_consumers([0])
    run.advance(25.0)
    assert run.take_finished().response_s == pytest.approx([10.0, 10.0, 10.0])
    run.set_consumers([5])
    run.advance(34.9)
    assert len(run.take_finished().job) == 0
    run.advance(35.1)
    assert sorted(run.take_finished().arrival_s) == pytest.approx([4.0, 5.0, 6.0, 7.0, 8.0])


def test_a_network_that_falls_behind_grows_and_at_last_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(
        topics=(Topic(name="A", service_rate_per_s=0.001),),
        jobs=(ModelJobType.along(["A", "A"], name="1", arrival_rate_per_s=1.0),),
    )
    run = NetworkSimulation(network, [1], seed=1, record=True)
    run.advance(3_000.0)
    assert run.jobs > 2_500
    run.set_consumers([1000])
    run.advance(100_000.0)
    counted = run.counters()
    assert counted.finished.sum() + run.jobs == counted.arrived.sum()
    monkeypatch.setattr(simulation, "JOBS_MAX", 2_000)
    run = NetworkSimulation(network, [1], seed=1)
    with pytest.raises(LimitExceeded, match="jobs are in the network at"):
        run.advance(10_000.0)


def test_what_makes_no_sense_is_refused() -> None:
    run = NetworkSimulation(case_study(), (1, 1, 1, 1), seed=1)
    run.advance(5.0)
    with pytest.raises(InvalidValue, match="time runs forwards"):
        run.advance(4.0)
    with pytest.raises(InvalidValue, match="time runs forwards"):
        run.advance(math.inf)
    with pytest.raises(InvalidValue, match="each of 4 topics"):
        run.set_consumers([1, 2])
    with pytest.raises(InvalidValue, match="no steady state"):
        simulate(case_study(), (1, 1, 1, 1), jobs=10, seed=1)
    with pytest.raises(InvalidValue, match="rates of 1 job types, the network has 3"):
        NetworkSimulation(case_study(), (1, 1, 1, 1), seed=1, curve=steps([1.0], [[1.0]]))
    with pytest.raises(InvalidValue, match="variability of 1 or more"):
        NetworkSimulation(case_study(), (1, 1, 1, 1), seed=1, services=DistributionFamily.HYPEREXPONENTIAL)
