"""The clients of the scenario: submitters of jobs and workers on tasks, with everything that can go wrong.

    leased ──► reported at once, after some work, late, or never
           ──► reported twice, the same or something else
           ──► extended, then reported
           ──► failed, retryable or not

A client without an answer repeats its request. During the calm, submitters stop, and workers do all that is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.jobs import (
    CancelJob,
    CompleteTask,
    DefineJobs,
    DescribeJob,
    ExtendTask,
    FailTask,
    JobSubmitted,
    LeaseTasks,
    ListJobs,
    Result,
    SubmitJob,
    TaskAssignment,
    TasksLeased,
)
from lavant.broker.protocol.queues import Done, Refused
from lavant.simulation.workflows.jobs import DEFINITIONS, WORKFLOWS

DRAIN = "drain"
UNDER_WAY_MAX = 4
LEASES_MAX = 2
"""Concurrent calls of a worker, so that reports need not wait for leases."""
WISHES_MAX = 30
KNOWN_MAX = 10


class JobWorkload(ABC):
    """One start of one client, which first has its job types defined; implements `ClientWork`."""

    def __init__(self, name: str, random: Random) -> None:
        self._name = name
        self._random = random
        self._is_defined = self._is_defining = False
        self._is_draining = False
        self._wishes: list[Request] = []
        self._later: list[tuple[int, int, Request]] = []
        self._count = 0

    def wishes(self, running_job: int, now_ms: int) -> Iterator[Request]:
        if not self._is_defined:
            if not self._is_defining:
                self._is_defining = True
                yield DefineJobs(WORKFLOWS)
            return
        while self._later and self._later[0][0] <= now_ms:
            self._wish(heappop(self._later)[2])
        if self._is_draining and not self._wishes and not running_job:
            self._drain()
        while self._wishes and running_job < UNDER_WAY_MAX:
            running_job += 1
            yield self._wishes.pop(0)

    def wakeup_ms(self) -> int | None:
        return self._later[0][0] if self._later and self._is_defined else None

    def asked(self, value: object, now_ms: int) -> None:
        if value == DRAIN:
            self._is_draining = True
        elif self._is_defined:
            self._do_something()

    def connected(self) -> None:  # noqa: B027  # the same for all of them: nothing
        pass

    def answered(self, request: Request, answer: Answer | None, now_ms: int) -> None:
        if isinstance(request, DefineJobs):
            self._is_defining = False
            self._is_defined = self._is_defined or isinstance(answer, Done)
        elif answer is None or (isinstance(answer, Refused) and answer.code == "StorageFull"):
            self._unanswered(request, now_ms)
        else:
            self._heard(request, answer, now_ms)

    @abstractmethod
    def _do_something(self) -> None:
        """The workload requests it."""

    def _drain(self) -> None:  # noqa: B027  # not everybody has something to do then
        """Do what is left during the calm."""

    @abstractmethod
    def _heard(self, request: Request, answer: Answer, now_ms: int) -> None:
        """A request was done or refused."""

    def _unanswered(self, request: Request, now_ms: int) -> None:
        """Repeat the request, mostly."""
        if not isinstance(request, LeaseTasks) and self._random.random() < 0.8:
            self._do_later(now_ms + self._random.randrange(1, 500), request)

    def _do_later(self, time_ms: int, request: Request) -> None:
        self._count += 1
        heappush(self._later, (time_ms, self._count, request))

    def _wish(self, request: Request) -> None:
        if len(self._wishes) < WISHES_MAX:
            self._wishes.append(request)


class Submitter(JobWorkload):
    """Submits jobs under names, cancels some, and reads others."""

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random)
        self._jobs = 0
        self._known: list[int] = []

    def _do_something(self) -> None:
        random = self._random
        chance = random.random()
        if chance < 0.75 or not self._known:
            self._jobs += 1
            name = f"{self._name}/{self._jobs}"
            self._wish(SubmitJob(random.choice(list(DEFINITIONS)), name.encode(), name))
        elif chance < 0.80:
            self._wish(CancelJob(random.choice(self._known)))
        else:
            self._wish(DescribeJob(random.choice(self._known)) if chance < 0.95 else ListJobs(count=5))

    def _heard(self, request: Request, answer: Answer, now_ms: int) -> None:
        if isinstance(answer, JobSubmitted):
            self._known = [*self._known[-KNOWN_MAX:], answer.job]
            if self._random.random() < 0.05:
                self._wish(request)  # once more, though it was answered


class SimulatedWorker(JobWorkload):
    """Works for all topics, a few tasks at once."""

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random)
        self._results = 0
        self._leases = 0
        """Running."""

    def _do_something(self) -> None:
        if self._leases >= LEASES_MAX or len(self._wishes) >= WISHES_MAX:
            return
        self._leases += 1
        random = self._random
        wait_ms = random.choice((0, 0, 200, 1_500))
        self._wish(LeaseTasks(random.choice(WORKFLOWS.topics), self._name, random.choice((1, 1, 2, 5)), wait_ms))

    def _drain(self) -> None:
        self._leases += 1
        self._wish(LeaseTasks(self._random.choice(WORKFLOWS.topics), self._name, 10, 50))

    def _heard(self, request: Request, answer: Answer, now_ms: int) -> None:
        if isinstance(answer, TasksLeased):
            for task in answer.tasks:
                self._treat(task, now_ms)

    def answered(self, request: Request, answer: Answer | None, now_ms: int) -> None:
        if isinstance(request, LeaseTasks):
            self._leases -= 1
        super().answered(request, answer, now_ms)

    def _treat(self, task: TaskAssignment, now_ms: int) -> None:
        random = self._random
        done = self._done(task)
        chance = random.random()
        if self._is_draining or chance < 0.40:
            self._do_later(now_ms + random.choice((0, 5, 50, 300)), done)
        elif chance < 0.55:
            self._do_later(now_ms + random.choice((5, 100)), done)
            self._do_later(now_ms + random.choice((10, 100, 500, 2_000)), self._second(task, done))
        elif chance < 0.65:
            self._do_later(now_ms + random.choice((900, 1_200, 2_000, 3_000)), done)
        elif chance < 0.75:
            self._do_later(now_ms + random.choice((5, 300)), self._failed(task, is_final=random.random() < 0.1))
        elif chance < 0.85:
            more_ms = random.choice((300, 1_500, 3_000))
            self._do_later(now_ms + random.choice((1, 500)), ExtendTask(task.job, task.task, task.attempt, more_ms))
            self._do_later(now_ms + random.choice((600, 1_500, 2_500)), done)

    def _second(self, task: TaskAssignment, done: CompleteTask) -> Request:
        """The same report, one with another result, or the opposite."""
        chance = self._random.random()
        if chance < 0.5:
            return done
        return self._done(task) if chance < 0.75 else self._failed(task, is_final=False)

    def _done(self, task: TaskAssignment) -> CompleteTask:
        """With a unique result."""
        self._results += 1
        result = Result(f"{self._name}/{self._results}".encode(), {"score": self._random.randrange(10)})
        return CompleteTask(task.job, task.task, task.attempt, result)

    def _failed(self, task: TaskAssignment, *, is_final: bool) -> FailTask:
        return FailTask(task.job, task.task, task.attempt, "bad luck", is_final)
