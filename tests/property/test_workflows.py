"""Jobs under any sequence of submissions, leases, reports, times and restarts, beside a simple model.

Restarts are real: the machine is made anew from a snapshot and the records behind it, or from all records.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.broker.workflows.model import ModelJob

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.frames import decode_answer, decode_request
from lavant.broker.protocol.jobs import (
    CancelJob,
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
)
from lavant.broker.protocol.queues import Peek, Peeked
from lavant.broker.queues.accounting.quotas import UNLIMITED
from lavant.broker.workflows.definitions.definition import JobDefinition, NextTask, TaskDefinition, Workflows
from lavant.broker.workflows.definitions.validation import check_job
from lavant.broker.workflows.limits import UNLIMITED_JOBS
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import AttemptOver, InvalidValue
from lavant.core.frames import encoder

TOPICS = ("A", "B")
CONDITIONS = ("", "", "x = 1", "x = 0", "x >= 0", "exists(x)")
MANY = 1000


@st.composite
def definitions(draw: st.DrawFn, name: str = "j") -> JobDefinition:
    """Any job type: arrows go from earlier to later tasks only, and each task but the first has one or is a start."""
    count = draw(st.integers(1, 6))
    arrows: list[list[NextTask]] = [[] for _ in range(count)]
    starts = ["t0"]
    for place in range(1, count):
        sources = draw(st.sets(st.integers(0, place - 1), max_size=3))
        if not sources:
            starts.append(f"t{place}")
        for source in sorted(sources):
            arrows[source].append(NextTask(f"t{place}", draw(st.sampled_from(CONDITIONS))))
    join = st.sampled_from(("all", "any"))
    tasks = [_task(draw, place, tuple(arrows[place]), draw(join)) for place in range(count)]
    job = JobDefinition(name, tuple(starts), tuple(tasks), timeout_ms=draw(st.sampled_from((150, 1_000_000))))
    try:
        check_job(job, TOPICS)
    except InvalidValue:  # a join that can never complete
        tasks = [_task(draw, place, tuple(arrows[place]), "any") for place in range(count)]
        job = JobDefinition(name, tuple(starts), tuple(tasks), job.timeout_ms)
        check_job(job, TOPICS)
    return job


def _task(draw: st.DrawFn, place: int, arrows: tuple[NextTask, ...], join: str) -> TaskDefinition:
    return TaskDefinition(
        f"t{place}",
        draw(st.sampled_from(TOPICS)),
        arrows,
        "any" if join == "any" else "all",
        attempts=draw(st.integers(1, 3)),
        timeout_ms=draw(st.sampled_from((20, 50))),
        backoff_ms=draw(st.sampled_from((0, 10))),
        backoff_ms_max=15,
        on_failure=draw(st.sampled_from(("fail", "continue"))),
    )


def ask(machine: Jobs, request: Request, now_ms: int) -> Answer:
    """As over the wire."""
    answer: Answer = decode_answer(encoder.encode(machine.handle(decode_request(encoder.encode(request)), now_ms)))
    return answer


# ── against the model ─────────────────────────────────────────────────────────────────────────────────────────────────


class JobsAndModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Jobs()
        self.now_ms = 1
        self.records: list[tuple[int, Request]] = []
        self.chunks: list[bytes] | None = None
        self.folded = 0
        """How many records the snapshot holds."""
        self.models: dict[int, ModelJob] = {}
        self.types: dict[str, JobDefinition] = {}
        self.given: list[TaskAssignment] = []

    @initialize(one=definitions("one"), other=definitions("other"))
    def define(self, one: JobDefinition, other: JobDefinition) -> None:
        self._define(one)
        self._define(other)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(job=definitions("one"))
    def redefine(self, job: JobDefinition) -> None:
        self._define(job)

    @rule(job_type=st.sampled_from(("one", "other")))
    def submit(self, job_type: str) -> None:
        answer = self._ask(SubmitJob(job_type, b"input"))
        assert answer == JobSubmitted(len(self.models) + 1, is_new=True)
        assert isinstance(answer, JobSubmitted)
        self.models[answer.job] = ModelJob(answer.job, self.types[job_type], self.now_ms)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 4), lease_ms=st.sampled_from((None, None, 3, 1_000)))
    def lease(self, topic: str, count: int, lease_ms: int | None) -> None:
        self._advance_model()
        ready = {
            (model.number, name)
            for model in self._under_way()
            for name, each in model.open()
            if model.tasks[name].topic == topic and not each.worker and each.visible_ms <= self.now_ms
        }
        worker = f"w{len(self.given)}"
        answer = self._ask(LeaseTasks(topic, worker, count, lease_ms=lease_ms))
        assert isinstance(answer, TasksLeased)
        assert len(answer.tasks) == min(count, len(ready))
        for task in answer.tasks:
            ready.remove((task.job, task.task))
            model = self.models[task.job]
            each = model.tries[task.task][-1]
            each.started_ms, each.worker = self.now_ms, worker
            timeout_ms = model.tasks[task.task].timeout_ms
            each.deadline_ms = self.now_ms + (timeout_ms if lease_ms is None else min(timeout_ms, lease_ms))
            assert task.timeout_ms == timeout_ms
            assert (task.attempt, task.deadline_ms) == (len(model.tries[task.task]), each.deadline_ms)
            assert (task.input, task.results) == (b"input", model.sources(task.task))
            self.given.append(task)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), x=st.sampled_from((None, 0, 1)))
    def complete(self, data: st.DataObject, x: int | None) -> None:
        task = self._drawn(data)
        result = Result(b"result %d" % len(self.records), {} if x is None else {"x": x})
        if self._report(task, CompleteTask(task.job, task.task, task.attempt, result), "completed"):
            self.models[task.job].complete(task.task, result, self.now_ms)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), is_final=st.sampled_from((False, False, True)))
    def fail(self, data: st.DataObject, is_final: bool) -> None:
        task = self._drawn(data)
        if self._report(task, FailTask(task.job, task.task, task.attempt, "why", is_final), "failed"):
            self.models[task.job].give_up(task.task, "failed", "why", self.now_ms, is_final=is_final)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), timeout_ms=st.sampled_from((5, 100)))
    def extend(self, data: st.DataObject, timeout_ms: int) -> None:
        task = self._drawn(data)
        if self._report(task, ExtendTask(task.job, task.task, task.attempt, timeout_ms), "extended"):
            self.models[task.job].tries[task.task][-1].deadline_ms = self.now_ms + timeout_ms

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._advance_model()
        model = self.models[data.draw(st.sampled_from(sorted(self.models)))]
        self._ask(CancelJob(model.number))
        if model.state == "running":
            model.end("cancelled", self.now_ms)

    @rule(passed_ms=st.sampled_from((0, 1, 5, 10, 20, 45)))
    def pass_time(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def wake_up_when_asked_to(self) -> None:
        wakeup_ms = self.machine.wakeup_ms()
        if wakeup_ms is not None and wakeup_ms < self.now_ms + 1_000:
            self.now_ms = max(self.now_ms, wakeup_ms)
            self.machine.advance(self.now_ms)

    @rule(from_snapshot=st.booleans())
    def restart(self, from_snapshot: bool) -> None:
        if from_snapshot and self.chunks is not None:
            machine, first = Jobs.restore(self.chunks, UNLIMITED, UNLIMITED_JOBS), self.folded
        else:
            machine, first = Jobs(UNLIMITED, UNLIMITED_JOBS), 0
        for time_ms, request in self.records[first:]:
            ask(machine, request, time_ms)
        for each in (machine, self.machine):
            each.advance(self.now_ms)
        assert list(machine.snapshot()) == list(self.machine.snapshot())
        self.machine = machine

    @rule()
    def snapshot(self) -> None:
        self.chunks, self.folded = list(self.machine.snapshot()), len(self.records)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def jobs_are_as_the_model_says(self) -> None:
        self._advance_model()
        waiting = 0
        for number, model in self.models.items():
            view = ask(self.machine, DescribeJob(number), self.now_ms)
            assert not self.machine.changed
            assert isinstance(view, JobView)
            assert view.state == model.state
            for task in view.tasks:
                assert task.state == model.task_state(task.name), (number, task)
                assert task.attempts == [each.view() for each in model.tries[task.name]]
            if model.state == "running":
                waiting += len(list(model.open()))
        assert self.machine.running == len(self._under_way())
        queued = [self.machine.handle(Peek(f"topic.{topic}", MANY), self.now_ms) for topic in TOPICS]
        assert sum(len(peeked.messages) for peeked in queued if isinstance(peeked, Peeked)) == waiting

    @invariant()
    def every_dead_task_has_its_letter(self) -> None:
        self._advance_model()
        letters = [self.machine.handle(Peek(f"dead.{topic}", MANY), self.now_ms) for topic in TOPICS]
        count = sum(len(peeked.messages) for peeked in letters if isinstance(peeked, Peeked))
        assert count == sum(len(model.dead) for model in self.models.values())

    def _define(self, job: JobDefinition) -> None:
        self._ask(DefineJobs(Workflows(TOPICS, (job,))))
        self.types[job.name] = job

    def _ask(self, request: Request) -> Answer:
        answer = ask(self.machine, request, self.now_ms)
        if self.machine.changed:
            self.records.append((self.machine.now_ms, request))
        return answer

    def _drawn(self, data: st.DataObject) -> TaskAssignment:
        """Mostly a late one."""
        return data.draw(st.sampled_from(self.given[-6:]))

    def _report(self, task: TaskAssignment, request: Request, outcome: str) -> bool:
        """Whether it counts."""
        self._advance_model()
        each = self.models[task.job].tries[task.task][task.attempt - 1]
        try:
            answer = self._ask(request)
        except AttemptOver:
            assert each.outcome not in ("", outcome)
            return False
        assert isinstance(answer, Reported)
        assert answer.is_new == (each.outcome == "")
        assert each.outcome in ("", outcome)
        return answer.is_new

    def _under_way(self) -> list[ModelJob]:
        return [model for model in self.models.values() if model.state == "running"]

    def _advance_model(self) -> None:
        while due := [each for model in self._under_way() if (each := model.next_due()) is not None]:
            time_ms, number, _, name = min(due)
            if time_ms > self.now_ms:
                return
            model = self.models[number]
            if name:
                reason = f"no report after {time_ms - model.tries[name][-1].started_ms} ms"
                model.give_up(name, "timed out", reason, time_ms)
            else:
                model.end("failed", time_ms)


TestJobsAndModel = JobsAndModel.TestCase
TestJobsAndModel.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=100, deadline=None)
@given(job=definitions(), data=st.data())
def test_any_job_runs_in_a_topological_order_and_ends(job: JobDefinition, data: st.DataObject) -> None:
    machine = Jobs()
    machine.handle(DefineJobs(Workflows(TOPICS, (job,))), 0)
    machine.handle(SubmitJob("j"), 0)
    held: list[TaskAssignment] = []
    done: list[str] = []
    while True:
        for topic in TOPICS:
            held += machine.handle(LeaseTasks(topic, "ann", 100), 0).tasks
        if not held:
            break
        task = held.pop(data.draw(st.integers(0, len(held) - 1)))
        assert set(task.results) <= set(done)
        machine.handle(
            CompleteTask(task.job, task.task, task.attempt, Result(b"", {"x": data.draw(st.integers(0, 1))})), 0
        )
        done.append(task.task)
    view = machine.handle(DescribeJob(1), 0)
    assert view.state == "completed"
    assert sorted(done) == [task.name for task in view.tasks if task.state == "done"]
    assert {task.state for task in view.tasks} <= {"done", "skipped"}
    before = {arrow.task: set[str]() for task in job.tasks for arrow in task.next}
    for each in job.tasks:
        for arrow in each.next:
            before[arrow.task].add(each.name)
    for place, name in enumerate(done):
        assert not before.get(name, set()) & set(done[place:])
