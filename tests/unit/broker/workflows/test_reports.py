"""Reports that come twice, late, or from nobody; submissions that are repeated. Each counts once, or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.broker.workflows.machines import CHAIN, JobMachine, machine_with, saved

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import CompleteTask, FailTask, LeaseTasks, Result, SubmitJob, TaskAssignment
from lavant.core.errors import AttemptOver, InvalidValue, LimitExceeded, UnknownJob, UnknownJobType, UnknownTopic


def leased(machine: JobMachine, topic: str = "A", now_ms: int | None = None) -> TaskAssignment:
    [task] = machine.lease(topic, now_ms=now_ms)
    return task


@pytest.fixture
def machine() -> JobMachine:
    return machine_with(CHAIN)


def test_a_report_that_comes_twice_counts_once(machine: JobMachine) -> None:
    machine.submit("chain")
    load = leased(machine)
    assert machine.complete(load, b"first").is_new
    before = saved(machine)
    assert not machine.complete(load, b"second").is_new
    assert not machine.changed
    assert saved(machine) == before
    assert machine.bodies("topic.B") == [b"1/fit"]
    assert leased(machine, "B").results == {"load": Result(b"first")}


def test_a_failure_that_is_reported_twice_counts_once(machine: JobMachine) -> None:
    job = machine.submit("chain")
    load = leased(machine)
    assert machine.fail(load).is_new
    assert not machine.fail(load).is_new
    assert len(machine.task(job, "load").attempts) == 2


def test_a_repeated_last_report_is_recognised_when_the_job_has_ended(machine: JobMachine) -> None:
    job = machine.submit("chain")
    for topic in "AB":
        machine.complete(leased(machine, topic))
    draw = leased(machine, "D")
    assert machine.complete(draw).job_state == "completed"
    again = machine.complete(draw)
    assert (again.is_new, again.job_state) == (False, "completed")
    with pytest.raises(AttemptOver, match="it is completed"):
        machine.fail(draw)
    assert machine.job(job).state == "completed"


def test_a_late_report_is_refused_and_the_next_attempt_counts(machine: JobMachine) -> None:
    machine.submit("chain", now_ms=0)
    late = leased(machine, now_ms=0)
    machine.advance(1_000)
    with pytest.raises(AttemptOver, match=r"attempt 1 at task 'load' of job 1 is over: it is timed out \(no report"):
        machine.complete(late)
    second = leased(machine, now_ms=1_100)
    with pytest.raises(AttemptOver):
        machine.complete(late)
    with pytest.raises(AttemptOver):
        machine.fail(late)
    with pytest.raises(AttemptOver):
        machine.extend(late, 1_000)
    assert machine.complete(second).is_new


def test_at_its_deadline_an_attempt_is_over(machine: JobMachine) -> None:
    machine.submit("chain", now_ms=0)
    task = leased(machine, now_ms=0)
    with pytest.raises(AttemptOver):
        machine.complete(task, now_ms=1_000)


@pytest.mark.parametrize("attempt", [-1, 0, 2, 99])
def test_an_attempt_that_nobody_was_given_cannot_be_reported(machine: JobMachine, attempt: int) -> None:
    machine.submit("chain")
    task = replace(leased(machine), attempt=attempt)
    with pytest.raises(AttemptOver, match="never assigned"):
        machine.complete(task)


def test_a_task_that_only_waits_cannot_be_reported(machine: JobMachine) -> None:
    job = machine.submit("chain")
    with pytest.raises(AttemptOver, match="never assigned"):
        machine.handle(CompleteTask(job, "load", 1), 0)
    with pytest.raises(AttemptOver, match="never assigned"):
        machine.handle(CompleteTask(job, "draw", 1), 0)


def test_what_is_not_there_is_named(machine: JobMachine) -> None:
    job = machine.submit("chain")
    with pytest.raises(UnknownJob, match="no job 7"):
        machine.handle(CompleteTask(7, "load", 1), 0)
    with pytest.raises(UnknownJob, match="no task 'lode'"):
        machine.handle(FailTask(job, "lode", 1), 0)
    machine.cancel(job)
    with pytest.raises(UnknownJob, match="no task 'lode'"):
        machine.handle(FailTask(job, "lode", 1), 0)
    with pytest.raises(UnknownJobType, match="'chian'"):
        machine.submit("chian")
    with pytest.raises(UnknownTopic, match="'Z'"):
        machine.lease("Z")


def test_a_submission_that_is_repeated_under_its_name_is_the_same_job(machine: JobMachine) -> None:
    first = machine.submit("chain", b"one", "order-1")
    assert machine.submit("chain", b"one", "order-1") == first
    assert not machine.changed
    assert machine.submit("chain", b"two", "order-2") == first + 1
    assert machine.submit("chain") == first + 2
    assert machine.submit("chain") == first + 3
    machine.cancel(first)
    assert machine.submit("chain", b"one", "order-1") == first


def test_sizes_of_requests_are_bounded(machine: JobMachine) -> None:
    job = machine.submit("chain", b"x" * (1 << 20))
    task = leased(machine)
    too_large: list[Request] = [
        SubmitJob("chain", b"x" * ((1 << 20) + 1)),
        SubmitJob("chain", name="n" * 129),
        LeaseTasks("A", "ann", 101),
        LeaseTasks("A", "a" * 129),
        LeaseTasks("A", "ann", wait_ms=20_001),
        LeaseTasks("A", "ann", lease_ms=12 * 3_600_000 + 1),
        CompleteTask(job, "load", 1, Result(b"x" * ((256 << 10) + 1))),
        CompleteTask(job, "load", 1, Result(b"", {f"a{place}": 1 for place in range(65)})),
        CompleteTask(job, "load", 1, Result(b"x" * (200 << 10), {"a": "x" * (60 << 10)})),
        FailTask(job, "load", 1, "r" * 2001),
    ]
    before = saved(machine)
    for request in too_large:
        with pytest.raises(LimitExceeded):
            machine.handle(request, machine.now_ms)
    bad_lease = LeaseTasks("A", "ann", lease_ms=0)
    bad_result = CompleteTask(job, "load", 1, Result(b"", {"@x": 1}))
    for bad in (LeaseTasks("A", ""), LeaseTasks("A", "ann", 0), bad_lease, bad_result):
        with pytest.raises(InvalidValue):
            machine.handle(bad, machine.now_ms)
    assert saved(machine) == before
    assert machine.complete(task, b"x" * (256 << 10)).is_new


def test_one_answer_to_a_lease_is_bounded_in_bytes(machine: JobMachine) -> None:
    for _ in range(20):
        machine.submit("chain", b"x" * (1 << 20))
    assert [len(machine.lease("A", 100)) for _ in range(3)] == [8, 8, 4]
