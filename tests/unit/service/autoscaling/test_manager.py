"""The loop: what is measured decides, what is decided is done and explained; and what a file may say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lavant.broker.protocol.commands import Answer, Command
from lavant.broker.protocol.jobs import (
    CompleteTask,
    FailTask,
    JobSubmitted,
    LeaseTasks,
    Reported,
    SubmitJob,
    TaskAssignment,
    TasksLeased,
)
from lavant.core.errors import InvalidValue
from lavant.service.autoscaling.allocators.interface import ConsumerCounts
from lavant.service.autoscaling.config_file import ResourcesFile
from lavant.service.autoscaling.manager import ResourceManager
from lavant.service.autoscaling.monitor import Monitor
from lavant.service.autoscaling.views import families, resources
from lavant.service.observability.openmetrics import openmetrics

TEXT = """
workflow.topics = ["A", "B"]
workflow.jobs.one = { start = "a", tasks.a = { topic = "A", next = "b" }, tasks.b = { topic = "B" } }

[goal]
response_s = 3

[loop]
recent_s = 2
scale_in_s = 20

[[topic]]
name = "A"
worker = "tasks"
service_rate = 1

[[topic]]
name = "B"
worker = "tasks"
service_rate = 10
consumers_max = 4
"""


class Consumers:
    name = "noted"

    def __init__(self) -> None:
        self.wanted: dict[str, int] = {}

    async def start(self) -> None: ...

    async def scale(self, topic: str, consumers: int) -> None:
        self.wanted[topic] = consumers

    def counts(self) -> dict[str, ConsumerCounts]:
        return {topic: ConsumerCounts(wanted=count, running=count) for topic, count in self.wanted.items()}

    async def stop(self) -> None:
        self.wanted.clear()


class Bench:
    """A manager in virtual time, whose monitor is told of arrivals only."""

    def __init__(self, directory: Path, text: str = TEXT) -> None:
        path = directory / "resources.toml"
        path.write_text(text)
        file = ResourcesFile(path)
        self.now_s = 0.0
        self.jobs = 0
        self.waiting = (0.0, 0.0)
        names = file.system.network
        self.monitor = Monitor(
            names.job_names, names.topic_names, file.monitor(), clock_ns=lambda: round(self.now_s * 1e9)
        )
        self.consumers = Consumers()
        self.manager = ResourceManager(file, self.monitor, self.consumers, lambda: self.waiting)

    def serve(self, topic: str, *, seconds: float, outcomes: str) -> None:
        """One task after the other, done (+) or failed (-)."""
        for number, outcome in enumerate(outcomes, start=1):
            self._tell(LeaseTasks(topic, "ann"), TasksLeased([TaskAssignment(number, "one", "a", 1, 0, b"", {})]))
            self.now_s += seconds
            report = CompleteTask(number, "a", 1) if outcome == "+" else FailTask(number, "a", 1)
            self._tell(report, Reported(is_new=True, job_state="running"))

    def _tell(self, command: Command, answer: Answer) -> None:
        self.monitor.observers[type(command)](command, answer)

    async def run(self, *, seconds: float, rate_per_s: float) -> None:
        end_s, next_s = self.now_s + seconds, self.now_s
        while self.now_s < end_s:
            while rate_per_s and next_s <= self.now_s:
                self.jobs += 1
                self._tell(SubmitJob("one"), JobSubmitted(self.jobs, is_new=True))
                next_s += 1 / rate_per_s
            await self.manager.step(round(self.now_s * 1000))
            self.now_s += 0.1


def test_consumers_follow_the_load_and_every_change_is_explained(tmp_path: Path) -> None:
    async def play() -> None:
        bench = Bench(tmp_path)
        await bench.manager.start()
        assert bench.consumers.wanted == {"A": 1, "B": 1}
        await bench.run(seconds=30, rate_per_s=0.2)
        assert bench.consumers.wanted == {"A": 1, "B": 1}
        await bench.run(seconds=10, rate_per_s=4)
        assert bench.consumers.wanted["A"] >= 5  # 4 of them are busy all the time
        [*_, first] = [each for each in bench.manager.decisions if "went from" in each.reason]
        assert "arrivals of all job types went from 0.2" in first.reason
        assert first.figures["one per s"] > 2
        view = resources(bench.manager)
        assert [topic.wanted for topic in view.topics] == list(bench.manager.wanted)
        assert view.decisions[0] == bench.manager.decisions[-1]
        assert f'lavant_consumers{{topic="A",state="wanted"}} {bench.manager.wanted[0]}' in openmetrics(
            families(bench.manager)
        )
        await bench.run(seconds=60, rate_per_s=0.2)
        assert bench.consumers.wanted == {"A": 1, "B": 1}
        await bench.manager.stop()
        assert not bench.consumers.wanted

    asyncio.run(play())


@pytest.mark.parametrize(("outcomes", "needed"), [("++++", 2), ("+" * 12, 3), ("+-" * 6, 6)])
def test_what_is_measured_takes_the_place_of_the_guess_and_failures_cost_time(
    tmp_path: Path, outcomes: str, needed: int
) -> None:
    """A guess of 1 task/s, services of 2 s, not quite 1.5 jobs/s: so many consumers just suffice."""

    async def play() -> None:
        bench = Bench(tmp_path, TEXT.replace("response_s = 3", "response_s = 1000"))
        bench.serve("A", seconds=2, outcomes=outcomes)
        await bench.run(seconds=60, rate_per_s=1.5)
        assert bench.manager.wanted[0] == needed

    asyncio.run(play())


def test_a_goal_out_of_reach_says_what_the_load_needs(tmp_path: Path) -> None:
    async def play() -> None:
        text = TEXT.replace("response_s = 3", "budget = 2")
        bench = Bench(tmp_path, text)
        await bench.run(seconds=60, rate_per_s=6)
        assert bench.manager.wanted == (3, 1)
        assert not resources(bench.manager).is_reached
        reasons = [each.reason for each in bench.manager.decisions]
        assert any("the load needs at least 8 consumers: A 7, B 1" in reason for reason in reasons)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("response_s = 3", "", "a response_s or a budget"),
        ("response_s = 3", "response_s = 3\nbudget = 2", "a response_s or a budget"),
        ("response_s = 3", "budget = 2\npercentile = 0.9", "belong to a response_s"),
        ("response_s = 3", 'response_s = 3\njob = "two"', "'two', which is none of one"),
        ("response_s = 3", "response_s = 3\nspeed = 9", "unknown field `speed`"),
        ("service_rate = 10", "service_rate = 0", "> 0"),
        ('name = "B"', 'name = "C"', "topic 'B', which has no .* worker"),
        ("consumers_max = 4", 'consumers_max = 4\n[[topic]]\nname = "Z"\nworker = "t"', "no job goes to topic 'Z'"),
        ("[goal]", "[goal", "resources.toml"),
        ("consumers_max = 4", "consumers_max = 4\nconsumers_min = 5", "least ≤ most"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TEXT
    path = tmp_path / "resources.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InvalidValue, match=said):
        ResourcesFile(path)
    with pytest.raises(InvalidValue, match="cannot read"):
        ResourcesFile(tmp_path / "none.toml")
