"""Jobs in a machine: types that change, topics that only jobs touch, limits, and what is remembered for how long."""

from __future__ import annotations

import pytest
from tests.unit.broker.workflows.machines import CHAIN, CHOICE, DIAMOND, JobMachine, machine_with

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import (
    DefineJobs,
    DescribeJobType,
    JobsListed,
    JobTypesListed,
    JobTypeView,
    KeepJobs,
    ListJobs,
    ListJobTypes,
    RemoveJobType,
)
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Described,
    DescribeQueue,
    Peek,
    PurgeQueue,
    Receipt,
    Receive,
    Received,
    Send,
    SendEntry,
    StartMove,
    TagQueue,
    VisibilityChange,
)
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.limits import JobLimits
from lavant.core.errors import (
    IdempotencyConflict,
    InvalidValue,
    LimitExceeded,
    QueueExists,
    StorageFull,
    UnknownJob,
    UnknownJobType,
)

# ── job types ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SHORT = CHAIN.replace('next = "fit", ', "").replace("tasks.fit", "# ").replace("tasks.draw", "# ")


def test_jobs_under_way_keep_the_definition_they_began_with() -> None:
    machine = machine_with(CHAIN)
    old = machine.submit("chain")
    machine.define(SHORT)
    new = machine.submit("chain")
    for task in machine.lease("A"):
        machine.complete(task)
    assert (machine.job(old).state, machine.job(new).state) == ("running", "completed")
    assert [task.task for task in machine.lease("B")] == ["fit"]


def test_the_same_definition_again_changes_nothing() -> None:
    machine = machine_with(CHAIN)
    machine.handle(DefineJobs(read_workflows(CHAIN)), 5)
    assert not machine.changed
    machine.handle(DefineJobs(read_workflows(SHORT)), 5)
    assert machine.changed


def test_a_type_that_is_removed_takes_no_more_jobs_and_those_under_way_end() -> None:
    machine = machine_with(CHAIN)
    job = machine.submit("chain")
    machine.handle(RemoveJobType("chain"), 0)
    with pytest.raises(UnknownJobType):
        machine.submit("chain")
    with pytest.raises(UnknownJobType):
        machine.handle(DescribeJobType("chain"), 0)
    for topic in "ABD":
        machine.complete(machine.lease(topic)[0])
    assert machine.job(job).state == "completed"


def test_a_type_counts_its_jobs() -> None:
    machine = machine_with(CHAIN)
    jobs = [machine.submit("chain") for _ in range(4)]
    machine.fail(machine.lease("A", 1)[0], is_final=True)
    machine.cancel(jobs[1])
    for topic in "ABD":
        machine.complete(machine.lease(topic, 1)[0])
    machine.define(SHORT)  # it goes on counting
    view = machine.ask(DescribeJobType("chain"), JobTypeView)
    assert view.definition == read_workflows(SHORT).jobs[0]
    assert (view.running, view.submitted, view.completed, view.failed, view.cancelled) == (1, 4, 1, 1, 1)


def test_a_type_that_was_removed_starts_anew() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain")
    machine.handle(RemoveJobType("chain"), 0)
    machine.define(CHAIN)
    view = machine.ask(DescribeJobType("chain"), JobTypeView)
    assert (view.running, view.submitted) == (1, 0)


def test_types_and_topics_are_listed() -> None:
    machine = machine_with(CHAIN)
    machine.define(CHOICE)
    assert machine.ask(ListJobTypes(), JobTypesListed) == JobTypesListed(["chain", "choice"], ["A", "B", "D"])


def test_a_definition_that_is_refused_changes_nothing() -> None:
    machine = JobMachine()
    machine.handle(CreateQueue("dead.B", QueueConfig()), 0)
    with pytest.raises(QueueExists, match=r"topic 'B' needs queue 'dead\.B'"):
        machine.define(CHAIN)
    small = JobMachine(QueueLimits(queues_max=5))
    with pytest.raises(LimitExceeded, match="3 topics with two each would exceed the limit of 5"):
        small.define(CHAIN)
    for each in (machine, small):
        assert each.ask(ListJobTypes(), JobTypesListed) == JobTypesListed([], [])
        assert not each.exists("topic.A")


# ── queues of topics ──────────────────────────────────────────────────────────────────────────────────────────────────

FOREIGN: list[Request] = [
    Send("topic.A", [SendEntry(b"1/load")]),
    Receive("topic.A"),
    Acknowledge("topic.A", [Receipt(1, 1)]),
    ChangeVisibility("topic.A", [VisibilityChange(Receipt(1, 1), 0)]),
    PurgeQueue("topic.A"),
    DeleteQueue("topic.A"),
    ConfigureQueue("topic.A", QueueConfig()),
    CreateQueue("topic.A", QueueConfig()),
    CreateQueue("mine", QueueConfig(dead_letters="topic.A", receives_max=1)),
    StartMove("topic.A"),
    StartMove("dead.A", "topic.A"),
    DeleteQueue("dead.A"),
    ConfigureQueue("dead.A", QueueConfig()),
    Send("dead.A", [SendEntry(b"")]),
]


@pytest.mark.parametrize("request_", FOREIGN, ids=lambda request: f"{type(request).__name__}-{FOREIGN.index(request)}")
def test_nobody_but_jobs_touches_the_queues_of_topics(request_: Request) -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain")
    with pytest.raises(InvalidValue, match=r"is not for it"):
        machine.handle(request_, 1)
    assert machine.bodies("topic.A") == [b"1/load"]


def test_everybody_may_look_at_them_and_treat_dead_letters() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain")
    machine.handle(Peek("topic.A"), 0)
    machine.handle(TagQueue("topic.A", {"team": "images"}), 0)
    machine.fail(machine.lease("A")[0], is_final=True)
    [letter] = machine.ask(Receive("dead.A"), Received).deliveries
    machine.handle(Acknowledge("dead.A", [letter.receipt]), 0)
    assert machine.bodies("dead.A") == []
    machine.handle(PurgeQueue("dead.A"), 0)


def test_the_figures_of_a_topic_tell_what_was_done() -> None:
    machine = machine_with(CHAIN)
    for _ in range(3):
        machine.submit("chain")
    for task in machine.lease("A", 2):
        machine.complete(task)
    figures = machine.ask(DescribeQueue("topic.A"), Described).figures
    assert (figures.sent, figures.received, figures.acknowledged, figures.visible) == (3, 2, 2, 1)


def test_other_queues_work_as_ever() -> None:
    machine = machine_with(CHAIN)
    machine.handle(CreateQueue("orders", QueueConfig()), 0)
    machine.handle(Send("orders", [SendEntry(b"tea")]), 0)
    assert machine.changed
    [delivery] = machine.ask(Receive("orders"), Received).deliveries
    assert delivery.body == b"tea"


@pytest.mark.parametrize("body", [b"1/load", b"9/load", b"1/nothing", b"hello", b"", b"9" * 5000, b"1/\xff"])
def test_a_message_that_is_no_task_is_thrown_out(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain", now_ms=0)
    machine.fail(machine.lease("A")[0])
    with monkeypatch.context() as patch:  # behind its back
        patch.setattr(JobMachine, "_check_reserved", lambda machine, request: None)
        machine.handle(Send("topic.A", [SendEntry(body)]), 1)
    assert machine.lease("A") == []
    assert machine.changed
    assert machine.bodies("topic.A") == [b"1/load"]  # the second attempt, which is delayed
    assert [task.attempt for task in machine.lease("A", now_ms=100)] == [2]


def test_of_dead_letters_only_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lavant.broker.workflows.topics.LETTERS", QueueConfig(depth_max=2))
    machine = machine_with(CHAIN)
    for _ in range(4):
        machine.submit("chain")
        machine.fail(machine.lease("A")[0], is_final=True)
    assert [body.split(b",")[0] for body in machine.bodies("dead.A")] == [b'{"job":3', b'{"job":4']


# ── limits and memory ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_under_way_are_bounded_in_number_and_size() -> None:
    machine = JobMachine(job_limits=JobLimits(running_max=2, bytes_max=100))
    machine.define(CHAIN)
    machine.submit("chain", b"x" * 60)
    with pytest.raises(StorageFull, match="hold 60 bytes, 41 more"):
        machine.submit("chain", b"x" * 41)
    second = machine.submit("chain", b"x" * 40)
    with pytest.raises(LimitExceeded, match="2 jobs are running"):
        machine.submit("chain")
    machine.cancel(second)
    machine.complete(machine.lease("A")[0], b"y" * 39, a="z")  # results count, and are never refused for it
    with pytest.raises(StorageFull, match="hold 101 bytes"):
        machine.submit("chain")


def test_room_comes_back_when_jobs_end() -> None:
    machine = JobMachine(job_limits=JobLimits(running_max=1, bytes_max=100))
    machine.define(CHAIN)
    for _ in range(3):
        machine.submit("chain", b"x" * 100)
        for topic in "ABD":
            machine.complete(machine.lease(topic)[0], b"y" * 50)
    assert machine.running == 0


def ended(machine: JobMachine, now_ms: int, name: str = "") -> int:
    job = machine.submit("chain", name=name, now_ms=now_ms)
    machine.cancel(job)
    return job


def known(machine: JobMachine) -> list[int]:
    return [job.number for job in machine.ask(ListJobs(), JobsListed).jobs]


def test_ended_jobs_are_forgotten_by_number() -> None:
    machine = machine_with(CHAIN)
    machine.handle(KeepJobs(count_max=2), 0)
    running_job = machine.submit("chain")
    jobs = [ended(machine, 0, f"n{place}") for place in range(4)]
    assert known(machine) == [running_job, *jobs[2:]]
    with pytest.raises(UnknownJob, match="forgotten"):
        machine.job(jobs[0])
    assert machine.submit("chain", name="n3") == jobs[3]
    assert machine.submit("chain", name="n0") > jobs[3]


@pytest.mark.parametrize("end", ["running", "completed", "failed", "cancelled"])
def test_a_name_with_another_type_or_input_is_refused(end: str) -> None:
    machine = machine_with(CHAIN)
    machine.define(DIAMOND)
    job = machine.submit("chain", b"input", "n")
    if end == "completed":
        for topic in "ABD":
            machine.complete(machine.lease(topic)[0])
    elif end == "failed":
        machine.fail(machine.lease("A")[0], is_final=True)
    elif end == "cancelled":
        machine.cancel(job)
    assert machine.job(job).state == end
    restored = JobMachine.restore(list(machine.snapshot()))
    assert isinstance(restored, JobMachine)
    for each in (machine, restored):
        assert each.submit("chain", b"input", "n") == job
        for job_type, input_ in (("chain", b"other"), ("chain", b""), ("diamond", b"input")):
            with pytest.raises(IdempotencyConflict, match="another type or input"):
                each.submit(job_type, input_, "n")
        assert not each.changed
        assert known(each) == [job]


def test_a_shorter_memory_counts_at_once() -> None:
    machine = machine_with(CHAIN)
    for _ in range(3):
        ended(machine, 0)
    machine.handle(KeepJobs(count_max=1), 0)
    assert known(machine) == [3]


def test_jobs_that_are_forgotten_leave_nothing_behind() -> None:
    machine = machine_with(CHAIN)
    machine.handle(KeepJobs(count_max=10), 0)
    for _ in range(2_000):
        ended(machine, 0)
    assert len(machine._store._numbers) < 600


def test_ended_jobs_are_forgotten_by_age_at_whole_seconds() -> None:
    machine = machine_with(CHAIN)
    machine.handle(KeepJobs(ms_max=10_000), 0)
    ended(machine, 100)
    ended(machine, 5_000)
    assert machine.wakeup_ms() == 11_000
    machine.advance(10_999)
    assert known(machine) == [1, 2]
    machine.advance(11_000)
    assert known(machine) == [2]
    machine.advance(15_000)
    assert known(machine) == []


def test_ended_jobs_are_forgotten_by_size() -> None:
    machine = machine_with(CHAIN)
    ended(machine, 0)
    size = machine._store.archive.bytes
    machine.handle(KeepJobs(bytes_max=3 * size), 0)
    for _ in range(9):
        ended(machine, 0)
    assert known(machine) == [8, 9, 10]


def test_a_job_of_which_nothing_is_kept_still_answers_its_last_report() -> None:
    machine = machine_with(SHORT)
    machine.handle(KeepJobs(count_max=0), 0)
    machine.submit("chain")
    assert machine.complete(machine.lease("A")[0]).job_state == "forgotten"


def test_jobs_are_listed_by_number_page_by_page_and_by_state() -> None:
    machine = machine_with(DIAMOND)
    for _ in range(7):
        machine.submit("diamond")
    for number in (2, 3, 6):
        machine.cancel(number)
    first = machine.ask(ListJobs(count=4), JobsListed)
    assert ([job.number for job in first.jobs], first.after) == ([1, 2, 3, 4], 4)
    rest = machine.ask(ListJobs(after=4, count=4), JobsListed)
    assert ([job.number for job in rest.jobs], rest.after) == ([5, 6, 7], None)
    cancelled = machine.ask(ListJobs(state="cancelled", count=2), JobsListed)
    assert ([job.number for job in cancelled.jobs], cancelled.after) == ([2, 3], 3)
    assert [job.number for job in machine.ask(ListJobs(after=3, state="cancelled"), JobsListed).jobs] == [6]


def test_a_listing_looks_at_so_many_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lavant.broker.workflows.job_store.LOOKED_AT_MAX", 3)
    machine = machine_with(CHAIN)
    for _ in range(5):
        machine.submit("chain")
    listed = machine.ask(ListJobs(state="failed"), JobsListed)
    assert (listed.jobs, listed.after) == ([], 3)
    assert machine.ask(ListJobs(state="failed", after=3), JobsListed).after is None


def test_timers_of_tasks_that_are_done_do_not_pile_up() -> None:
    machine = machine_with(SHORT)
    for _ in range(1_000):
        machine.submit("chain")
        machine.complete(machine.lease("A")[0])
    assert len(machine._execution._timers) < 200


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_machine_wakes_up_for_the_end_of_a_job_that_nobody_works_on() -> None:
    machine = machine_with(CHAIN.replace('start = "load"', 'start = "load"\ntimeout_ms = 60_000'))
    machine.submit("chain", now_ms=5)
    assert machine.wakeup_ms() == 60_005


def test_all_queues_to_which_something_happened_are_told_though_jobs_came_between() -> None:
    machine = machine_with(CHAIN.replace("attempts = 3", "attempts = 1"))
    machine.handle(CreateQueue("orders", QueueConfig()), 0)
    machine.handle(Send("orders", [SendEntry(b"tea", delay_ms=500)]), 0)
    machine.submit("chain")
    machine.lease("A")
    assert {"orders", "dead.A"} <= set(machine.advance(1_000))


def test_a_task_that_is_tried_again_at_once_is_told() -> None:
    machine = machine_with(CHAIN.replace("backoff_ms = 100", "backoff_ms = 0"))
    machine.submit("chain")
    machine.lease("A")
    machine.touched()
    assert machine.advance(1_000).count("topic.A") == 2  # its lease is over, and there is another message
