"""The state machine of jobs over queues: the job invoker and mapping table of the control plane.

    SubmitJob ──► task in queue topic.A ──LeaseTasks──► worker ──CompleteTask──► task in queue topic.B ──► … ──► ended

Nguyen and Nahrstedt (see `definition`), Section II. There a consumer looks up the next task and publishes it itself;
here the report of a task does both and removes its message too. So "this task is done, its message is gone, these tasks
follow" is one command and one journal record, and at no moment is a job lost or duplicated.

`Jobs` extends `Queues`: some queues carry tasks, it handles all queue requests too, shares the journal, and follows the
same rules of replay. Deadlines of attempts and jobs take effect at their own time, in the order of (time, job, task),
whenever the machine is advanced, so they need no record.

Unlike a receive, a lease must be durable before it is answered: then an attempt is known to one worker only, and (job,
task, attempt) identifies it for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from lavant.broker.protocol import jobs as commands
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import (
    AddSchedule,
    FireSchedule,
    ListSchedules,
    RemoveSchedule,
    ScheduleAdded,
    SchedulesListed,
    ScheduleState,
)
from lavant.broker.protocol.queues import Done, Refused, Send, SendEntry, Sent
from lavant.broker.protocol.registry import COMMANDS, JOBS, QUERIES, handlers_of
from lavant.broker.queues.accounting.memory import ATTEMPT, MESSAGE
from lavant.broker.queues.accounting.quotas import DEFAULT_LIMITS, QueueLimits
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.plan import Plan, unchanged
from lavant.broker.queues.queue import QueueState
from lavant.broker.queues.queue import memory_of as queue_memory
from lavant.broker.queues.timers import earliest
from lavant.broker.queues.validation import check_range
from lavant.broker.workflows import snapshot
from lavant.broker.workflows.definitions.dag import JobType
from lavant.broker.workflows.definitions.definition import TASK_TIMEOUT_MS_MAX, letters_of, queue_of
from lavant.broker.workflows.definitions.validation import check
from lavant.broker.workflows.execution import JobExecution
from lavant.broker.workflows.job import (
    CANCELLED,
    COMPLETED,
    FAILED,
    JOB_STATES,
    RUNNING,
    Job,
    RunningAttempt,
    memory_of_new,
    memory_of_result,
    size_of,
)
from lavant.broker.workflows.job_store import JobStore
from lavant.broker.workflows.job_types import JobTypes
from lavant.broker.workflows.job_types import memory_of as type_memory
from lavant.broker.workflows.limits import (
    DEFAULT_JOB_LIMITS,
    LEASED_BYTES_MAX,
    LEASED_MAX,
    LISTED_MAX,
    REASON_CHARACTERS_MAX,
    RESULTS_SHARE,
    JobLimits,
)
from lavant.broker.workflows.request_validation import (
    check_foreign,
    check_keeping,
    check_lease,
    check_result,
    check_submission,
)
from lavant.broker.workflows.schedules import Schedules, check_schedule, memory_of_schedule, next_of
from lavant.broker.workflows.topics import Topics
from lavant.broker.workflows.views import is_same, view_of
from lavant.core.errors import AttemptOver, IdempotencyConflict, Missing, UnknownJob
from lavant.core.publications.trace_context import trace_context
from lavant.core.validation.choices import check_choice

_DONE = Done()


class Jobs(Queues):
    """All queues and jobs of a server.

    >>> from lavant.broker.protocol.jobs import *
    >>> from lavant.broker.workflows.definitions.toml_file import read_workflows
    >>> jobs = Jobs()
    >>> jobs.handle(DefineJobs(read_workflows('''
    ... topics = ["C", "D"]
    ... [jobs.simple]
    ... start = "load"
    ... tasks.load = { topic = "C", next = "draw" }
    ... tasks.draw = { topic = "D" }
    ... ''')), now_ms=0)
    Done()
    >>> jobs.handle(SubmitJob("simple", b"image 7"), now_ms=1)
    JobSubmitted(job=1, is_new=True)
    >>> [load] = jobs.handle(LeaseTasks("C", "ann"), now_ms=2).tasks
    >>> jobs.handle(CompleteTask(load.job, load.task, load.attempt, Result(b"pixels")), now_ms=3)
    Reported(is_new=True, job_state='running', deadline_ms=0)
    >>> [draw] = jobs.handle(LeaseTasks("D", "bob"), now_ms=4).tasks  # with `input` and the `results` before it
    >>> jobs.handle(CompleteTask(draw.job, draw.task, draw.attempt), now_ms=5).job_state
    'completed'
    """

    def __init__(self, limits: QueueLimits = DEFAULT_LIMITS, job_limits: JobLimits = DEFAULT_JOB_LIMITS) -> None:
        super().__init__(limits)
        self.job_limits = job_limits
        self._store = JobStore(self._counters)
        self._types = JobTypes(self._counters)
        self._topics = Topics(self._directory, self._counters, self._moved)
        self._reserved = self._topics.queues
        self.schedules = Schedules(self._counters)
        self._execution = JobExecution(self._store, self._types, self._topics)

    def handle(self, request: Request, now_ms: int) -> Any:
        """Handle a command or query and return its `Answer`. Raises a `LavantError` if it is refused."""
        return super().handle(request, now_ms)

    def advance(self, now_ms: int) -> list[str]:
        if now_ms <= self.now_ms:  # several times for each request
            return self.touched() if self._execution.touched else []
        advanced: list[str] = []
        while (due_ms := self._execution.next_ms()) is not None and due_ms <= now_ms:
            advanced += super().advance(due_ms)
            self._execution.time_is_up(due_ms)
        advanced += super().advance(now_ms)
        self._store.forget(self.now_ms)
        return [*advanced, *self.touched()]

    def wakeup_ms(self) -> int | None:
        return earliest(super().wakeup_ms(), *self._own_times())

    def may_wake_before(self, time_ms: int) -> bool:
        for own_ms in self._own_times():
            if own_ms is not None and own_ms < time_ms:
                return True
        return super().may_wake_before(time_ms)

    def _own_times(self) -> tuple[int | None, ...]:
        return self._execution.next_ms(), self._store.archive.next_ms(), self.schedules.next_ms()

    def touched(self) -> list[str]:
        """The queues that got messages since the last call, apart from those that `advance` returned."""
        touched, self._execution.touched = self._execution.touched, []
        return touched

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return self._store.running

    def watch_ends(self, on_ended: Callable[[Job, str, str, int], None]) -> None:
        """Call it with each job that ends from now on, its state, the reason and the time. It must not raise."""
        self._store.on_ended = on_ended

    def snapshot(self) -> Iterator[bytes]:
        yield from snapshot.encode(self._store, self._types, self._topics, self.schedules)
        yield from super().snapshot()

    @classmethod
    def restore(
        cls, chunks: Iterable[bytes], limits: QueueLimits = DEFAULT_LIMITS, job_limits: JobLimits = DEFAULT_JOB_LIMITS
    ) -> Jobs:
        """Restore a machine from the chunks of its snapshot, or of a snapshot of queues only."""
        saved, queues = snapshot.decode(chunks)
        jobs = super().restore(queues, limits)
        assert isinstance(jobs, Jobs)
        jobs.job_limits = job_limits
        snapshot.fill(saved, jobs._store, jobs._types, jobs._topics, jobs._execution, jobs.schedules)
        return jobs

    def _check_reserved(self, request: Any) -> None:
        check_foreign(request, self._topics)

    # ── job types ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _define_jobs(self, request: commands.DefineJobs) -> Plan:
        if not self.is_replay:
            check(request.workflows)
            self._types.check_room(request.workflows.jobs)
        topics = self._topics.check_new(request.workflows.topics, self.limits.queues_max, is_replay=self.is_replay)
        types = [JobType(each) for each in request.workflows.jobs if not self._types.has(each)]
        queues = sum(queue_memory(name, {}) for topic in topics for name in (queue_of(topic), letters_of(topic)))
        self.check_memory(queues + sum(type_memory(each.definition) for each in types))

        def apply() -> Done:
            self._topics.add(topics, self.now_ms)
            for type_ in types:
                self._types.define(type_)
            self.changed = bool(topics or types)
            return _DONE

        return apply

    def _remove_job_type(self, request: commands.RemoveJobType) -> Plan:
        type_ = self._types[request.job_type]

        def apply() -> Done:
            self._types.remove(type_)
            self.changed = True
            return _DONE

        return apply

    def _keep_jobs(self, request: commands.KeepJobs) -> Plan:
        if not self.is_replay:
            check_keeping(request)

        def apply() -> Done:
            self._store.archive.keep = request
            self._store.forget(self.now_ms)
            self.changed = True
            return _DONE

        return apply

    def _describe_job_type(self, request: commands.DescribeJobType) -> commands.JobTypeView:
        type_ = self._types[request.job_type]
        totals = self._types.totals(type_.name)
        return commands.JobTypeView(
            type_.definition,
            self._types.running(type_.name),
            totals.submitted,
            totals.completed,
            totals.failed,
            totals.cancelled,
        )

    def _list_job_types(self, request: commands.ListJobTypes) -> commands.JobTypesListed:
        return commands.JobTypesListed([type_.name for type_ in self._types], self._topics.names())

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _submit_job(self, request: commands.SubmitJob) -> Plan:
        if not self.is_replay:
            check_submission(request)
        type_ = self._types[request.job_type]
        known = self._store.named(request.name)
        if known is not None:
            if not is_same(self._store[known], request.job_type, request.input):
                raise IdempotencyConflict(
                    f"a job {request.name!r} with another type or input is known as job {known}; nothing was "
                    "submitted: choose another name, or submit the very same again"
                )
            return unchanged(commands.JobSubmitted(known, is_new=False))
        self._store.check_room(len(request.input), self.job_limits)
        tasks = len(type_.starts) * (ATTEMPT + MESSAGE)
        trace = trace_context(*request.trace)
        self.check_memory(memory_of_new(request.name, request.input, len(type_.steps), trace) + tasks)

        def apply() -> commands.JobSubmitted:
            self._store.number += 1
            job = Job(
                self._store.number,
                type_,
                name=request.name,
                input_=request.input,
                submitted_ms=self.now_ms,
                deadline_ms=self.now_ms + type_.definition.timeout_ms,
                trace=trace,
            )
            self._execution.begin(job, self.now_ms)
            self.changed = True
            return commands.JobSubmitted(job.number, is_new=True)

        return apply

    def _cancel_job(self, request: commands.CancelJob) -> Plan:
        job = self._store[request.job]

        def apply() -> commands.Cancelled:
            if isinstance(job, Job):
                self._execution.end(job, CANCELLED, "somebody cancelled it", self.now_ms)
                self.changed = True
            return commands.Cancelled(is_new=self.changed, job_state=self._store.state_of(request.job))

        return apply

    def _describe_job(self, request: commands.DescribeJob) -> commands.JobView:
        return view_of(self._store[request.job])

    def _list_jobs(self, request: commands.ListJobs) -> commands.JobsListed:
        check_range("count", request.count, 1, LISTED_MAX)
        if request.state:
            check_choice("state", request.state, JOB_STATES)
        return self._store.listed(request.after, request.count, request.state)

    # ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_schedule(self, request: AddSchedule) -> Plan:
        if not self.is_replay:
            check_schedule(request)
            self.schedules.check_room(request.namespace, request.name)
        self.check_memory(memory_of_schedule(request))
        next_ms = next_of(request, self.now_ms, self.now_ms)
        before = self.schedules.get(request.namespace, request.name)

        def apply() -> ScheduleAdded:
            what = (request.name, request.cron, request.interval_ms, request.job_type, request.queue, request.body)
            schedule = ScheduleState(*what, created_ms=self.now_ms, next_ms=next_ms, namespace=request.namespace)
            if before is not None and (before.name, *_content(before)) == what:
                return ScheduleAdded(before, is_new=False)
            self.schedules.put(schedule)
            self.changed = True
            return ScheduleAdded(schedule, is_new=True)

        return apply

    def _remove_schedule(self, request: RemoveSchedule) -> Plan:
        schedule = self.schedules.find(request.namespace, request.name)

        def apply() -> Done:
            self.schedules.remove(schedule.namespace, schedule.name)
            self.changed = True
            return _DONE

        return apply

    def _fire_schedule(self, request: FireSchedule) -> Plan:
        """Raises if there is no room, and it should fire later; what is missing is an error that it keeps."""
        schedule = self.schedules.find(request.namespace, request.name)
        try:
            act, error = self._scheduled(schedule), ""
        except Missing as missing:
            act, error = unchanged(_DONE), str(missing)

        def apply() -> Done:
            answer = act()
            refused = answer.entries[0] if isinstance(answer, Sent) else None
            self.schedules.fired(schedule, self.now_ms, refused.reason if isinstance(refused, Refused) else error)
            self.changed = True
            return _DONE

        return apply

    def _scheduled(self, schedule: ScheduleState) -> Plan:
        if schedule.job_type:
            return self._submit_job(commands.SubmitJob(schedule.job_type, schedule.body))
        is_in_order = self._directory[schedule.queue].is_in_order
        group = schedule.name if is_in_order else ""
        once = f"{schedule.name}-{schedule.next_ms}" if is_in_order else ""
        return self.plan(Send(schedule.queue, [SendEntry(schedule.body, b"", None, group, once)]))

    def _list_schedules(self, request: ListSchedules) -> SchedulesListed:
        check_range("count", request.count, 1, LISTED_MAX)
        found = [each for each in self.schedules.of(request.namespace) if each.name > request.after]
        return SchedulesListed(found[: request.count])

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lease_tasks(self, request: commands.LeaseTasks) -> Plan:
        if not self.is_replay:
            check_lease(request)
        queue = self._topics[request.topic]

        def apply() -> commands.TasksLeased:
            assignments: list[commands.TaskAssignment] = []
            bytes_left = LEASED_BYTES_MAX
            while len(assignments) < request.count and bytes_left > 0:
                message = self._topics.take(queue)
                if message is None:
                    break
                self.changed = True
                assignment = self._execution.start(
                    queue, message, request.worker, self.now_ms, lease_ms=request.lease_ms
                )
                if assignment is not None:
                    assignments.append(assignment)
                    bytes_left -= len(assignment.input) + sum(map(size_of, assignment.results.values()))
            return commands.TasksLeased(assignments)

        return apply

    def _complete_task(self, request: commands.CompleteTask) -> Plan:
        if not self.is_replay:
            check_result(request.result)
        job, index = self._reported(request, COMPLETED)
        if job is not None and size_of(request.result):
            self.check_memory(memory_of_result(request.result), reserve=self.limits.memory_max // RESULTS_SHARE)

        def apply() -> commands.Reported:
            if job is not None:
                self._execution.complete(job, index, request.result, self.now_ms)
            return self._report(job, request.job)

        return apply

    def _fail_task(self, request: commands.FailTask) -> Plan:
        if not self.is_replay:
            check_range("the length of a reason", len(request.reason), 0, REASON_CHARACTERS_MAX)
        job, index = self._reported(request, FAILED)

        def apply() -> commands.Reported:
            if job is not None:
                self._execution.give_up(job, index, FAILED, request.reason, self.now_ms, is_final=request.is_final)
            return self._report(job, request.job)

        return apply

    def _extend_task(self, request: commands.ExtendTask) -> Plan:
        if not self.is_replay:
            check_range("timeout_ms", request.timeout_ms, 1, TASK_TIMEOUT_MS_MAX)
        job, index = self._reported(request, RUNNING)
        assert job is not None, "an attempt cannot end like this"

        def apply() -> commands.Reported:
            deadline_ms = self.now_ms + request.timeout_ms
            self._execution.extend(job, index, deadline_ms)
            self.changed = True
            return commands.Reported(is_new=True, job_state=RUNNING, deadline_ms=deadline_ms)

        return apply

    def _release_tasks(self, request: commands.ReleaseTasks) -> Plan:
        """Release tasks; those whose attempt or job has ended are ignored."""
        if not self.is_replay:
            check_range("the number of tasks", len(request.tasks), 1, LEASED_MAX)
        leased = dict.fromkeys(place for each in request.tasks if (place := self._running_attempt(each)) is not None)

        def apply() -> Done:
            for number, index in leased:
                job = self._store.running_job(number)
                assert job is not None
                self._execution.release(job, index)
            self.changed = bool(leased)
            return _DONE

        return apply

    def _running_attempt(self, leased: commands.TaskAttempt) -> tuple[int, int] | None:
        """Job and index of a task, if this attempt at it is running."""
        job = self._store.running_job(leased.job)
        index = None if job is None else job.type.by_name.get(leased.task)
        if job is None or index is None:
            return None
        task = job.tasks[index]
        is_made = task.state == RUNNING and len(task.attempts) == leased.attempt
        return (leased.job, index) if is_made else None

    def _reported(
        self, report: commands.CompleteTask | commands.FailTask | commands.ExtendTask, outcome: str
    ) -> tuple[Job | None, int]:
        """Job and index of the attempt; no job if the same report came before. A late report is refused."""
        job = self._store[report.job]
        attempts, index = _attempts_at(job, report.task)
        place = report.attempt - 1
        what = f"attempt {report.attempt} at task {report.task!r} of job {report.job}"
        if not 0 <= place < len(attempts) or not attempts[place].worker:
            raise AttemptOver(f"{what} was never assigned; report what a lease has named")
        attempt = attempts[place]
        if not attempt.outcome:
            assert isinstance(job, Job), "a job that has ended has no attempt that has not"
            return job, index
        if attempt.outcome == outcome:
            return None, index
        why = f" ({attempt.reason})" if attempt.reason else ""
        raise AttemptOver(f"{what} is over: it is {attempt.outcome}{why}; its result is no longer needed")

    def _report(self, job: Job | None, number: int) -> commands.Reported:
        self.changed = job is not None
        return commands.Reported(is_new=self.changed, job_state=self._store.state_of(number))

    def _moved(self, queue: QueueState) -> None:
        """Call after every change of a topic's messages. Handlers set `changed`."""
        queue.tidy()
        self._timers.schedule(queue)

    _PLANNERS: ClassVar[dict[type, Callable[[Any, Any], Plan]]] = {
        **Queues._PLANNERS,
        **handlers_of(JOBS, vars(), COMMANDS),
    }
    _ANSWERS: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {
        **Queues._ANSWERS,
        **handlers_of(JOBS, vars(), QUERIES),
    }


def _content(schedule: ScheduleState) -> tuple[str, int, str, str, bytes]:
    return schedule.cron, schedule.interval_ms, schedule.job_type, schedule.queue, schedule.body


def _attempts_at(job: Job | bytes, task: str) -> tuple[list[RunningAttempt] | list[commands.AttemptView], int]:
    """Attempts at a task of a running or ended job, and the task's index."""
    if isinstance(job, Job):
        index = job.type.by_name.get(task)
        if index is not None:
            return job.tasks[index].attempts, index
    else:
        for index, view in enumerate(view_of(job).tasks):
            if view.name == task:
                return view.attempts, index
    raise UnknownJob(f"the job has no task {task!r}; report what a lease has named")
