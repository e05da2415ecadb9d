"""Jobs in virtual time: the real server holds, mistakes that are put into it are found, and runs repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.repetition import check_repetition

from lavant.broker.machine.effects import Reply
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.jobs import CompleteTask, Result, TasksLeased
from lavant.broker.queues.machine import Queues
from lavant.broker.workflows.definitions.dag import DagStep, is_taken
from lavant.broker.workflows.execution import THE_JOB, JobExecution, Timers
from lavant.broker.workflows.job import CANCELLED, DEAD, DONE, QUEUED, RUNNING, SKIPPED, Job, TaskState
from lavant.broker.workflows.job_store import JobStore
from lavant.broker.workflows.machine import Jobs
from lavant.broker.workflows.topics import Topics
from lavant.simulation.kernel import RunOutcome, Scenario, Trace, run
from lavant.simulation.queues.server import MakeServer
from lavant.simulation.scenarios import workflows
from lavant.simulation.scenarios.workflows import WorkflowOptions

SEEDS = range(1, 7)
SEARCHED = range(1, 100)
MINUTES = 0.25

Break = Callable[[pytest.MonkeyPatch], MakeServer | None]
"""Puts a mistake into the machines; what makes the server, if that is where it is."""


def test_a_server_without_mistakes_holds_whatever_happens() -> None:
    figures: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run(workflows.SCENARIO, seed, minutes=MINUTES)
        assert outcome.violation is None, outcome.report()
        figures.update(outcome.figures)
    # And much did happen.
    wanted = ["power losses", "kills", "packets dropped", "journal compacted", "journal recovered from a snapshot"]
    answers = ["JobSubmitted", "TasksLeased", "Reported", "AttemptOver", "Cancelled", "JobView"]
    ends = ["completed", "failed", "cancelled"]
    wanted += [*(f"answers {name}" for name in answers), *(f"jobs heard to be {state}" for state in ends)]
    assert [name for name in wanted if not figures[name]] == []


# ── mistakes in the server ────────────────────────────────────────────────────────────────────────────────────────────


class HastyReport(BrokerMachine):
    """Confirms what is not durable."""

    def _change_jobs(self, request: Any, asked: RequestContext, now_ms: int) -> None:
        super()._change_jobs(request, asked, now_ms)
        self._effects += [reply for _, reply, _ in self._pending._replies]
        self._pending._replies.clear()
        self._pending._hurried = 0


class HastyLease(BrokerMachine):
    def _deliver(self, asked: RequestContext, answer: Any, queue: str) -> None:
        if isinstance(answer, TasksLeased):
            self._effects.append(Reply(asked.client, asked.number, answer, queue))
        else:
            super()._deliver(asked, answer, queue)


class UnrecordedReport(BrokerMachine):
    def _change_jobs(self, request: Any, asked: RequestContext, now_ms: int) -> None:
        if isinstance(request, CompleteTask):
            self._reply(asked, self.broker.handle(request, now_ms), self.position)
        else:
            super()._change_jobs(request, asked, now_ms)


# ── mistakes in the machine ───────────────────────────────────────────────────────────────────────────────────────────


def message_that_stays(patch: pytest.MonkeyPatch) -> None:
    """Acknowledging is another step, which is forgotten when the task before was odd."""
    drop = Topics.drop

    def drop_some(self: Topics, topic: str, number: int) -> None:
        if number % 7:
            drop(self, topic, number)

    patch.setattr(Topics, "drop", drop_some)


def next_task_that_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    decide = Job.decide
    patch.setattr(Job, "decide", lambda self, index, found: decide(self, index, found)[: 1 if self.number % 5 else 0])


def join_that_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Job, index: int, attributes: Any) -> list[int]:
        self.undecided -= 1
        started = []
        for target, when in self.type.steps[index].arrows:
            task = self.tasks[target]
            task.undecided -= 1
            if is_taken(when, attributes):
                task.taken |= 1 << index
                if not task.attempts:
                    started.append(target)
            elif not task.undecided and not task.taken:
                task.state = SKIPPED
                self.undecided -= 1
        return started

    patch.setattr(Job, "decide", decide)


def join_that_is_content_with_any(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DagStep, "starts", lambda self, taken: taken > 0)


def skipped_branch_that_nobody_hears_of(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Job, index: int, attributes: Any) -> list[int]:
        self.undecided -= 1
        starting = []
        for target, when in self.type.steps[index].arrows:
            task = self.tasks[target]
            if is_taken(when, attributes):
                task.undecided -= 1
                task.taken |= 1 << index
                if not task.undecided:
                    starting.append(target)
            else:
                task.state = SKIPPED
                self.undecided -= 1
        return starting

    patch.setattr(Job, "decide", decide)


def condition_that_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lavant.broker.workflows.job.is_taken", lambda when, attributes: True)


def time_that_is_never_up(patch: pytest.MonkeyPatch) -> None:
    add = Timers.add
    patch.setattr(Timers, "add", lambda self, ms, job, task: add(self, ms, job, task) if task == THE_JOB else None)


def timers_that_a_restart_forgets(patch: pytest.MonkeyPatch) -> None:
    restore = JobExecution.restore

    def restore_without(self: JobExecution, job: Job) -> None:
        states = [task.state for task in job.tasks]
        for task in job.tasks:
            task.state = DONE if task.state == RUNNING else task.state
        restore(self, job)
        for task, state in zip(job.tasks, states, strict=True):
            task.state = state

    patch.setattr(JobExecution, "restore", restore_without)


def time_that_is_up_when_somebody_looks(patch: pytest.MonkeyPatch) -> None:
    """Not when it is: so a replay, which looks at other times, does something else."""

    def advance(self: Jobs, now_ms: int) -> list[str]:
        advanced = Queues.advance(self, now_ms)
        while (due_ms := self._execution.next_ms()) is not None and due_ms <= now_ms:
            self._execution.time_is_up(now_ms)
        return [*advanced, *self.touched()]

    patch.setattr(Jobs, "advance", advance)


def retries_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lavant.broker.workflows.execution.len", lambda values: 0, raising=False)


def dead_letter_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Topics, "dead_letter", lambda self, topic, letter, now_ms: None)


def dead_task_of_which_the_job_knows_nothing(patch: pytest.MonkeyPatch) -> None:
    end = JobExecution.end

    def end_mostly(self: JobExecution, job: Job, state: str, reason: str, now_ms: int) -> None:
        if not any(task.state == DEAD for task in job.tasks) or job.number % 3:
            end(self, job, state, reason, now_ms)

    patch.setattr(JobExecution, "end", end_mostly)


def late_report_that_counts(patch: pytest.MonkeyPatch) -> None:
    """Whoever reports first, no matter whose attempt it is now."""
    reported = Jobs._reported

    def any_attempt(self: Jobs, report: Any, outcome: str) -> tuple[Job | None, int]:
        job = self._store.running_job(report.job)
        index = None if job is None else job.type.by_name[report.task]
        if job is not None and index is not None and job.tasks[index].state in (QUEUED, RUNNING):
            return job, index
        return reported(self, report, outcome)

    patch.setattr(Jobs, "_reported", any_attempt)


def second_report_that_counts(patch: pytest.MonkeyPatch) -> None:
    report = Jobs._report

    def always_new(self: Jobs, job: Job | None, number: int) -> Any:
        answer = report(self, job, number)
        return type(answer)(is_new=True, job_state=answer.job_state)

    patch.setattr(Jobs, "_report", always_new)


def job_that_ends_and_leaves_its_tasks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskState, "is_open", property(lambda self: False))


def results_that_go_astray(patch: pytest.MonkeyPatch) -> None:
    results_for = Job.results_for

    def mixed(self: Job, index: int) -> dict[str, Result]:
        found = results_for(self, index)
        return dict(zip(found, reversed(list(found.values())), strict=True))

    patch.setattr(Job, "results_for", mixed)


def submission_that_counts_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobStore, "named", lambda self, name: None)


def cancellation_that_undoes_an_end(patch: pytest.MonkeyPatch) -> None:
    state_of = JobStore.state_of
    patch.setattr(JobStore, "state_of", lambda self, job: CANCELLED if job % 10 == 0 else state_of(self, job))


def in_the_server(server: Callable[..., BrokerMachine]) -> Break:
    def make(broker: BrokerState, position: int) -> BrokerMachine:
        return server(broker, position=position)

    return lambda patch: make


MISTAKES: dict[str, Break] = {
    "a report or submission is answered before it is durable": in_the_server(HastyReport),
    "a lease is answered before it is durable": in_the_server(HastyLease),
    "a report is not recorded": in_the_server(UnrecordedReport),
    "a message stays when its task is done": message_that_stays,
    "the next task is not sent": next_task_that_is_not_sent,
    "a join does not wait": join_that_does_not_wait,
    "a join is content with any of its branches": join_that_is_content_with_any,
    "nobody behind it hears of a branch that is skipped": skipped_branch_that_nobody_hears_of,
    "a condition is ignored": condition_that_is_ignored,
    "the time of an attempt is never up": time_that_is_never_up,
    "a restart forgets timers": timers_that_a_restart_forgets,
    "time is up when somebody looks": time_that_is_up_when_somebody_looks,
    "a task is tried without end": retries_without_end,
    "a dead letter is lost": dead_letter_that_is_lost,
    "a job does not hear of a dead task": dead_task_of_which_the_job_knows_nothing,
    "a late report counts": late_report_that_counts,
    "a second report counts": second_report_that_counts,
    "a job ends and leaves its tasks behind": job_that_ends_and_leaves_its_tasks,
    "results go astray": results_that_go_astray,
    "a submission that is repeated is another job": submission_that_counts_twice,
    "workers hear of another end": cancellation_that_undoes_an_end,
}


def first_violation(scenario: Scenario) -> RunOutcome:
    """The first seed that fails; a failure of this test means that the search finds nothing."""
    outcomes = (run(scenario, seed) for seed in SEARCHED)
    return next(outcome for outcome in outcomes if outcome.violation is not None)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake_and_its_seed_repeats_it(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = partial(workflows.build, make_server=MISTAKES[mistake](monkeypatch))
    scenario = Scenario(name="workflows", summary="…", options=WorkflowOptions, build=build, minutes=MINUTES)
    found = first_violation(scenario)
    assert found.violation is not None
    assert not found.violation.traceback, found.report()
    assert run(scenario, found.seed).violation == found.violation
    assert f"lavant sim replay workflows --seed {found.seed} --minutes {MINUTES}" in found.report()


# ── repetition ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_traces_are_byte_identical_in_processes_that_hash_differently(tmp_path: Path) -> None:
    check_repetition("workflows", tmp_path, seed=3, minutes=0.2)


def test_another_seed_is_another_run() -> None:
    digests = {run(workflows.SCENARIO, seed, minutes=0.05, trace=Trace()).digest for seed in range(3)}
    assert len(digests) == 3
