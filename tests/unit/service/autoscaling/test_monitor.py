"""What the monitor makes of the commands of jobs: rates, service times, responses, changes."""

from __future__ import annotations

import random

import pytest

from lavant.broker.protocol.jobs import CompleteTask, DefineJobs, FailTask, LeaseTasks, SubmitJob
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.machine import Jobs
from lavant.service.autoscaling.monitor import Measurement, Monitor, MonitorConfig

DEFINITIONS = """
topics = ["A"]
[jobs.one]
start = "a"
tasks.a = { topic = "A", attempts = 9, backoff_ms = 0 }
"""


class Bench:
    """A real hub, a clock of its own, and the monitor that watches."""

    def __init__(self, **config: float) -> None:
        self.now_s = 1000.0
        self.hub = Jobs()
        self.hub.handle(DefineJobs(read_workflows(DEFINITIONS)), 0)
        self.monitor = Monitor(["one"], ["A"], MonitorConfig(**config), clock_ns=lambda: round(self.now_s * 1e9))

    def ask(self, command: object) -> object:
        answer = self.hub.handle(command, round(self.now_s * 1000))  # type: ignore[arg-type]
        if type(command) in self.monitor.observers:
            self.monitor.observers[type(command)](command, answer)
        return answer

    def submit(self, *, count: int, every_s: float) -> list[Measurement]:
        looks = []
        for _ in range(count):
            self.now_s += every_s
            self.ask(SubmitJob("one"))
            looks.append(self.monitor.measure())
        return looks


def test_services_are_from_lease_to_report_and_responses_from_submission_to_end() -> None:
    bench = Bench(window_s=100, recent_s=50)
    chance = random.Random(5)
    durations = []
    for _ in range(30):
        bench.ask(SubmitJob("one"))
        bench.now_s += 0.5
        [task] = bench.ask(LeaseTasks("A", "ann")).tasks  # type: ignore[attr-defined]
        durations.append(round(chance.uniform(0.1, 0.9), 3))
        bench.now_s += durations[-1]
        bench.ask(CompleteTask(task.job, task.task, task.attempt))
        bench.ask(CompleteTask(task.job, task.task, task.attempt))  # a repetition is no second service
    seen = bench.monitor.measure()
    mean = sum(durations) / 30
    variance = sum((each - mean) ** 2 for each in durations) / 29
    topic = seen.topics["A"]
    assert topic.services == 30
    assert topic.service_rate_per_s == pytest.approx(1 / mean)
    assert topic.service_scv == pytest.approx(variance / mean**2)
    assert seen.response_s == pytest.approx(mean + 0.5)
    assert seen.jobs["one"].arrivals == 30


def test_attempts_that_fail_are_services_that_failed() -> None:
    bench = Bench()
    bench.ask(SubmitJob("one"))
    for number in range(1, 5):
        [task] = bench.ask(LeaseTasks("A", "ann")).tasks  # type: ignore[attr-defined]
        bench.now_s += 1
        bench.ask(FailTask(task.job, "a", number, "no") if number < 4 else CompleteTask(task.job, "a", number))
    topic = bench.monitor.measure().topics["A"]
    assert (topic.services, topic.failure_probability, topic.service_rate_per_s) == (4, 0.75, 1.0)


def test_a_burst_is_seen_at_once_and_what_was_before_is_forgotten() -> None:
    bench = Bench(window_s=60, recent_s=2)
    quiet = bench.submit(count=60, every_s=0.5)
    assert not any(look.change for look in quiet)
    assert quiet[-1].jobs["one"].arrival_rate_per_s == pytest.approx(2, rel=0.05)
    busy = bench.submit(count=20, every_s=0.1)
    [(place, change)] = [(place, look.change) for place, look in enumerate(busy) if look.change]
    assert place < 15
    assert change.startswith("arrivals of all job types went from 1.98/s to ")
    assert bench.submit(count=40, every_s=0.1)[-1].jobs["one"].arrival_rate_per_s == pytest.approx(9.5, rel=0.2)


def test_the_end_of_a_burst_is_seen_too() -> None:
    bench = Bench(window_s=60, recent_s=2)
    bench.submit(count=200, every_s=0.1)
    looks = bench.submit(count=20, every_s=0.5)
    assert any(look.change for look in looks)
    assert looks[-1].jobs["one"].arrival_rate_per_s < 4


def test_the_first_arrivals_make_no_great_rate() -> None:
    bench = Bench(window_s=30, recent_s=5)
    [first, *_] = bench.submit(count=1, every_s=0.001)
    assert first.jobs["one"].arrival_rate_per_s == pytest.approx(0.2)


def test_the_window_is_as_long_as_nothing_changes_up_to_its_most() -> None:
    bench = Bench(window_s=30, recent_s=2)
    looks = bench.submit(count=100, every_s=0.5)
    assert looks[9].window_s == pytest.approx(5, abs=0.5)
    assert all(look.window_s <= 30.5 for look in looks)
    assert looks[-1].window_s >= 29


def test_other_jobs_and_topics_are_not_its_concern() -> None:
    bench = Bench()
    other = DEFINITIONS.replace("one", "two").replace('"A"', '"B"')
    bench.hub.handle(DefineJobs(read_workflows(other)), 0)
    bench.ask(SubmitJob("two"))
    bench.ask(LeaseTasks("B", "ann"))
    bench.ask(CompleteTask(1, "a", 1))
    seen = bench.monitor.measure()
    assert seen.jobs["one"].arrivals == 0
    assert seen.topics["A"].services == 0
