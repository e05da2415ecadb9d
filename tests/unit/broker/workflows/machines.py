"""Small machines with jobs for tests, and short ways to ask them."""

from __future__ import annotations

from typing import TypeVar

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.jobs import (
    CancelJob,
    Cancelled,
    CompleteTask,
    DefineJobs,
    DescribeJob,
    ExtendTask,
    FailTask,
    JobSubmitted,
    JobView,
    LeaseTasks,
    Reported,
    Result,
    SubmitJob,
    TaskAssignment,
    TasksLeased,
    TaskView,
)
from lavant.broker.protocol.queues import Peek, Peeked
from lavant.broker.queues.accounting.quotas import DEFAULT_LIMITS, QueueLimits
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.limits import DEFAULT_JOB_LIMITS, JobLimits
from lavant.broker.workflows.machine import Jobs
from lavant.core.publications.attributes import AttributeValue

CHAIN = """
topics = ["A", "B", "D"]
[jobs.chain]
start = "load"
tasks.load = { topic = "A", next = "fit", attempts = 3, timeout_ms = 1_000, backoff_ms = 100, backoff_ms_max = 150 }
tasks.fit = { topic = "B", next = "draw" }
tasks.draw = { topic = "D" }
"""
DIAMOND = """
topics = ["A", "B", "D"]
[jobs.diamond]
start = "load"
tasks.load = { topic = "A", next = ["left", "right"] }
tasks.left = { topic = "B", next = "join" }
tasks.right = { topic = "B", next = "join" }
tasks.join = { topic = "D" }
"""
CHOICE = """
topics = ["A", "B", "D"]
[jobs.choice]
start = "look"
tasks.look.topic = "A"
tasks.look.next = [{ task = "fine", when = "score >= 0.5" }, { task = "coarse", when = "score < 0.5" }]
tasks.fine = { topic = "B", next = "store" }
tasks.coarse = { topic = "B", next = "store" }
tasks.store = { topic = "D", join = "any" }
"""

_A = TypeVar("_A", bound=Answer)


class JobMachine(Jobs):
    """A machine with the questions that tests ask."""

    def __init__(self, limits: QueueLimits = DEFAULT_LIMITS, job_limits: JobLimits = DEFAULT_JOB_LIMITS) -> None:
        super().__init__(limits, job_limits)
        self.journal: list[tuple[int, Request]] = []
        """What a replay must do too."""

    def ask(self, request: Request, kind: type[_A], now_ms: int | None = None) -> _A:
        """Now, if no time is given."""
        answer = self.handle(request, self.now_ms if now_ms is None else now_ms)
        assert isinstance(answer, kind)
        if self.changed:
            self.journal.append((self.now_ms, request))
        return answer

    def define(self, text: str) -> None:
        self.handle(DefineJobs(read_workflows(text)), self.now_ms)
        self.journal.append((self.now_ms, DefineJobs(read_workflows(text))))

    def submit(self, job_type: str, input_: bytes = b"", name: str = "", now_ms: int | None = None) -> int:
        return self.ask(SubmitJob(job_type, input_, name), JobSubmitted, now_ms).job

    def lease(
        self, topic: str, count: int = 10, worker: str = "ann", now_ms: int | None = None
    ) -> list[TaskAssignment]:
        return self.ask(LeaseTasks(topic, worker, count), TasksLeased, now_ms).tasks

    def complete(
        self, task: TaskAssignment, body: bytes = b"", now_ms: int | None = None, **attributes: AttributeValue
    ) -> Reported:
        return self.ask(CompleteTask(task.job, task.task, task.attempt, Result(body, attributes)), Reported, now_ms)

    def fail(
        self, task: TaskAssignment, reason: str = "", now_ms: int | None = None, *, is_final: bool = False
    ) -> Reported:
        return self.ask(FailTask(task.job, task.task, task.attempt, reason, is_final), Reported, now_ms)

    def extend(self, task: TaskAssignment, timeout_ms: int, now_ms: int | None = None) -> Reported:
        return self.ask(ExtendTask(task.job, task.task, task.attempt, timeout_ms), Reported, now_ms)

    def cancel(self, job: int, now_ms: int | None = None) -> Cancelled:
        return self.ask(CancelJob(job), Cancelled, now_ms)

    def job(self, number: int, now_ms: int | None = None) -> JobView:
        return self.ask(DescribeJob(number), JobView, now_ms)

    def task(self, number: int, name: str) -> TaskView:
        [task] = [task for task in self.job(number).tasks if task.name == name]
        return task

    def task_states(self, number: int) -> dict[str, str]:
        return {task.name: task.state for task in self.job(number).tasks}

    def bodies(self, queue: str) -> list[bytes]:
        """Of all messages in a queue."""
        return [message.body for message in self.ask(Peek(queue, 1000), Peeked).messages]

    def replayed(self) -> JobMachine:
        """Another one that has done the same."""
        other = JobMachine()
        for time_ms, request in self.journal:
            other.handle(request, time_ms)
        other.advance(self.now_ms)
        return other


def machine_with(text: str) -> JobMachine:
    machine = JobMachine()
    machine.define(text)
    return machine


def saved(machine: Jobs) -> bytes:
    return b"".join(machine.snapshot())
