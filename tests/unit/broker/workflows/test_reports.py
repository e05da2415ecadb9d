"""Reports that come twice, late, or from nobody; submissions that are repeated. Each counts once, or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.broker.workflows.hubs import CHAIN, Hub, hub_with, saved

from lavant.broker.protocol.jobs import CompleteTask, FailTask, LeaseTasks, Request, Result, SubmitJob, TaskAssignment
from lavant.core.errors import AttemptOver, InvalidValue, LimitExceeded, UnknownJob, UnknownJobType, UnknownTopic


def leased(hub: Hub, topic: str = "A", now_ms: int | None = None) -> TaskAssignment:
    [task] = hub.lease(topic, now_ms=now_ms)
    return task


@pytest.fixture
def hub() -> Hub:
    return hub_with(CHAIN)


def test_a_report_that_comes_twice_counts_once(hub: Hub) -> None:
    hub.submit("chain")
    load = leased(hub)
    assert hub.complete(load, b"first").is_new
    before = saved(hub)
    assert not hub.complete(load, b"second").is_new
    assert not hub.changed
    assert saved(hub) == before
    assert hub.bodies("topic.B") == [b"1/fit"]
    assert leased(hub, "B").results == {"load": Result(b"first")}


def test_a_failure_that_is_reported_twice_counts_once(hub: Hub) -> None:
    job = hub.submit("chain")
    load = leased(hub)
    assert hub.fail(load).is_new
    assert not hub.fail(load).is_new
    assert len(hub.task(job, "load").attempts) == 2


def test_a_repeated_last_report_is_recognised_when_the_job_has_ended(hub: Hub) -> None:
    job = hub.submit("chain")
    for topic in "AB":
        hub.complete(leased(hub, topic))
    draw = leased(hub, "D")
    assert hub.complete(draw).job_state == "completed"
    again = hub.complete(draw)
    assert (again.is_new, again.job_state) == (False, "completed")
    with pytest.raises(AttemptOver, match="it is completed"):
        hub.fail(draw)
    assert hub.job(job).state == "completed"


def test_a_late_report_is_refused_and_the_next_attempt_counts(hub: Hub) -> None:
    hub.submit("chain", now_ms=0)
    late = leased(hub, now_ms=0)
    hub.advance(1_000)
    with pytest.raises(AttemptOver, match=r"attempt 1 at task 'load' of job 1 is over: it is timed out \(no report"):
        hub.complete(late)
    second = leased(hub, now_ms=1_100)
    with pytest.raises(AttemptOver):
        hub.complete(late)
    with pytest.raises(AttemptOver):
        hub.fail(late)
    with pytest.raises(AttemptOver):
        hub.extend(late, 1_000)
    assert hub.complete(second).is_new


def test_at_its_deadline_an_attempt_is_over(hub: Hub) -> None:
    hub.submit("chain", now_ms=0)
    task = leased(hub, now_ms=0)
    with pytest.raises(AttemptOver):
        hub.complete(task, now_ms=1_000)


@pytest.mark.parametrize("attempt", [-1, 0, 2, 99])
def test_an_attempt_that_nobody_was_given_cannot_be_reported(hub: Hub, attempt: int) -> None:
    hub.submit("chain")
    task = replace(leased(hub), attempt=attempt)
    with pytest.raises(AttemptOver, match="given to nobody"):
        hub.complete(task)


def test_a_task_that_only_waits_cannot_be_reported(hub: Hub) -> None:
    job = hub.submit("chain")
    with pytest.raises(AttemptOver, match="given to nobody"):
        hub.handle(CompleteTask(job, "load", 1), 0)
    with pytest.raises(AttemptOver, match="given to nobody"):
        hub.handle(CompleteTask(job, "draw", 1), 0)


def test_what_is_not_there_is_named(hub: Hub) -> None:
    job = hub.submit("chain")
    with pytest.raises(UnknownJob, match="no job 7"):
        hub.handle(CompleteTask(7, "load", 1), 0)
    with pytest.raises(UnknownJob, match="no task 'lode'"):
        hub.handle(FailTask(job, "lode", 1), 0)
    hub.cancel(job)
    with pytest.raises(UnknownJob, match="no task 'lode'"):
        hub.handle(FailTask(job, "lode", 1), 0)
    with pytest.raises(UnknownJobType, match="'chian'"):
        hub.submit("chian")
    with pytest.raises(UnknownTopic, match="'Z'"):
        hub.lease("Z")


def test_a_submission_that_is_repeated_under_its_name_is_the_same_job(hub: Hub) -> None:
    first = hub.submit("chain", b"one", "order-1")
    assert hub.submit("chain", b"one", "order-1") == first
    assert not hub.changed
    assert hub.submit("chain", b"two", "order-2") == first + 1
    assert hub.submit("chain") == first + 2
    assert hub.submit("chain") == first + 3
    hub.cancel(first)
    assert hub.submit("chain", b"one", "order-1") == first


def test_sizes_of_requests_are_bounded(hub: Hub) -> None:
    job = hub.submit("chain", b"x" * (1 << 20))
    task = leased(hub)
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
    before = saved(hub)
    for request in too_large:
        with pytest.raises(LimitExceeded):
            hub.handle(request, hub.now_ms)
    bad_lease = LeaseTasks("A", "ann", lease_ms=0)
    bad_result = CompleteTask(job, "load", 1, Result(b"", {"@x": 1}))
    for bad in (LeaseTasks("A", ""), LeaseTasks("A", "ann", 0), bad_lease, bad_result):
        with pytest.raises(InvalidValue):
            hub.handle(bad, hub.now_ms)
    assert saved(hub) == before
    assert hub.complete(task, b"x" * (256 << 10)).is_new


def test_one_answer_to_a_lease_is_bounded_in_bytes(hub: Hub) -> None:
    for _ in range(20):
        hub.submit("chain", b"x" * (1 << 20))
    assert [len(hub.lease("A", 100)) for _ in range(3)] == [8, 8, 4]
