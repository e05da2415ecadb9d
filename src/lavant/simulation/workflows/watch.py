"""Checks jobs from outside, only from the requests and answers of clients:

* A name is one job, and a job one name.
* An attempt is given to one worker, once; there are no more attempts than the definition allows.
* A task starts after all tasks that lead to it were reported, with the results that were reported, and because of them.
* A task is completed once; a worker that asks for work after that does not get it again.
* A job ends once: clients never hear of two different ends.
"""

from __future__ import annotations

from lavant.broker.filters import Filter
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import (
    CancelJob,
    Cancelled,
    CompleteTask,
    FailTask,
    JobSubmitted,
    JobView,
    LeaseTasks,
    Reported,
    Result,
    SubmitJob,
    TaskAssignment,
    TasksLeased,
)
from lavant.broker.protocol.queues import Refused
from lavant.broker.workflows.job import RUNNING
from lavant.simulation.kernel import Host, World
from lavant.simulation.queues.client import Began, CallEnded
from lavant.simulation.queues.protocol import SessionId
from lavant.simulation.workflows.jobs import SOURCES, TASKS

ONE_NAME = "a name is one job"
ONE_WORKER = "an attempt is given to one worker"
BOUNDED = "a task is tried as often as its definition allows"
IN_ORDER = "a task starts after all that lead to it"
COMPLETED_ONCE = "a task is completed once"
ONE_END = "a job ends once"


class Watch:
    """Takes the notes of all clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._notes = 0
        self._under_way: dict[tuple[str, SessionId, int], tuple[int, Request]] = {}
        """And the number of the note with which they began."""
        self.jobs: dict[str, int] = {}
        """Jobs confirmed as submitted, by name."""
        self.ends: dict[int, str] = {}
        """Final states of jobs that clients heard of."""
        self._names: dict[int, str] = {}
        self._given: set[tuple[int, str, int]] = set()
        self._reports: dict[tuple[int, str], list[Result]] = {}
        """Results that workers reported, answered or not."""
        self._completed: dict[tuple[int, str], int] = {}
        """Tasks that clients heard are done, and the number of that note."""
        self._counted: set[tuple[int, str]] = set()
        """Tasks that clients heard were completed by this report; answers may come in any order."""
        self._settled: set[tuple[int, str, int]] = set()
        self._over: dict[int, int] = {}
        """Jobs whose end clients heard of, and the number of that note."""

    def note(self, host: Host, value: Began | CallEnded) -> None:
        self._notes += 1
        key = host.name, value.session, value.number
        if isinstance(value, Began):
            self._under_way[key] = self._notes, value.request
            if isinstance(value.request, CompleteTask):
                report = value.request
                self._reports.setdefault((report.job, report.task), []).append(report.result)
            return
        began, request = self._under_way.pop(key)
        answer = value.answer
        self._world.count(f"answers {answer.code if isinstance(answer, Refused) else type(answer).__name__}")
        match request, answer:
            case SubmitJob(name=name), JobSubmitted(job=job):
                self._submitted(name, job)
            case LeaseTasks(), TasksLeased(tasks=tasks):
                for task in tasks:
                    self._started(task, began)
            case CompleteTask() | FailTask(), Reported():
                self._reported(request, answer)
            case CancelJob(job=job), Cancelled(job_state=state):
                self._ended(job, state)
            case _, JobView(number=job, state=state):
                self._ended(job, state)
            case _:
                pass

    def _submitted(self, name: str, job: int) -> None:
        if self.jobs.setdefault(name, job) != job or self._names.setdefault(job, name) != name:
            self._world.violated(
                ONE_NAME, f"{name!r} is job {self.jobs[name]} and {job}, which is {self._names.get(job)!r} too"
            )

    def _started(self, task: TaskAssignment, began: int) -> None:
        what = f"attempt {task.attempt} at {task.task!r} of job {task.job} ({task.job_type})"
        identity = task.job, task.task, task.attempt
        if identity in self._given:
            self._world.violated(ONE_WORKER, f"{what} is given for a second time")
        self._given.add(identity)
        name = task.input.decode()
        self._submitted(name, task.job)
        if not 1 <= task.attempt <= TASKS[task.job_type, task.task].attempts:
            self._world.violated(BOUNDED, f"{what} is more than there may be")
        for confirmed, over in ((self._completed.get(identity[:2]), "completed"), (self._over.get(task.job), "ended")):
            if confirmed is not None and confirmed < began:
                self._world.violated(COMPLETED_ONCE, f"{what} is given to a worker that asked after it was {over}")
        self._check_sources(task, what)

    def _check_sources(self, task: TaskAssignment, what: str) -> None:
        sources = SOURCES[task.job_type, task.task]
        join = TASKS[task.job_type, task.task].join
        if (join == "all" and len(task.results) < len(sources)) or (sources and not task.results):
            self._world.violated(IN_ORDER, f"{what} starts after {sorted(task.results)} of {sorted(sources)}")
        for source, result in task.results.items():
            went_on = TASKS[task.job_type, source].on_failure == "continue" and result == Result()
            if not went_on and result not in self._reports.get((task.job, source), []):
                self._world.violated(IN_ORDER, f"{what} gets {result} of {source!r}, which was never reported")
            when = sources.get(source)
            if when is None or (when and not Filter.parse(when).matches(result.attributes)):
                self._world.violated(IN_ORDER, f"{what} starts because of {source!r} with {result}, against {when!r}")

    def _reported(self, report: CompleteTask | FailTask, answer: Reported) -> None:
        what = f"attempt {report.attempt} at {report.task!r} of job {report.job}"
        if answer.is_new:
            if (report.job, report.task, report.attempt) in self._settled:
                self._world.violated(COMPLETED_ONCE, f"a second report of {what} counts")
            self._settled.add((report.job, report.task, report.attempt))
        if isinstance(report, CompleteTask):
            if answer.is_new and (report.job, report.task) in self._counted:
                self._world.violated(COMPLETED_ONCE, f"{what} counts, though another one did before")
            if answer.is_new:
                self._counted.add((report.job, report.task))
            self._completed.setdefault((report.job, report.task), self._notes)
        self._ended(report.job, answer.job_state)

    def _ended(self, job: int, state: str) -> None:
        if state == RUNNING:
            return
        if job not in self._over:
            self._over[job] = self._notes
            self._world.count(f"jobs heard to be {state}")
        if self.ends.setdefault(job, state) != state:
            self._world.violated(ONE_END, f"job {job} is {state}, and was {self.ends[job]} before")
