"""Execution of jobs: which task starts when, with which input, and how jobs end."""

from __future__ import annotations

import json

import pytest
from tests.unit.broker.workflows.machines import CHAIN, CHOICE, DIAMOND, JobMachine, machine_with

from lavant.broker.protocol.jobs import AttemptView, Result
from lavant.broker.protocol.queues import Described, DescribeQueue
from lavant.core.errors import AttemptOver


def one(machine: JobMachine, topic: str, now_ms: int | None = None) -> str:
    """Lease the only task of a topic, complete it, and say which it was."""
    [task] = machine.lease(topic, now_ms=now_ms)
    machine.complete(task)
    return task.task


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chain_goes_from_topic_to_topic() -> None:
    machine = machine_with(CHAIN)
    job = machine.submit("chain", b"image")
    assert machine.lease("B") == machine.lease("D") == []
    assert [one(machine, topic) for topic in "ABD"] == ["load", "fit", "draw"]
    assert (machine.job(job).state, machine.job(job).input) == ("completed", b"")
    assert [machine.lease(topic) for topic in "ABD"] == [[], [], []]


def test_a_topic_can_be_visited_twice() -> None:
    machine = machine_with(
        """
        topics = ["A", "D"]
        [jobs.twice]
        start = "load"
        tasks.load = { topic = "A", next = "first" }
        tasks.first = { topic = "D", next = "second" }
        tasks.second = { topic = "D" }
        """
    )
    job = machine.submit("twice")
    assert [one(machine, topic) for topic in "ADD"] == ["load", "first", "second"]
    assert machine.job(job).state == "completed"


def test_a_join_waits_for_all_its_branches() -> None:
    machine = machine_with(DIAMOND)
    job = machine.submit("diamond")
    one(machine, "A")
    left, right = machine.lease("B")
    assert [left.task, right.task] == ["left", "right"]
    machine.complete(right, b"r")
    assert machine.lease("D") == []
    machine.complete(left, b"l")
    [join] = machine.lease("D")
    assert join.results == {"left": Result(b"l"), "right": Result(b"r")}
    assert machine.complete(join).job_state == "completed"
    assert machine.job(job).results == {"join": Result()}


def test_a_job_may_begin_in_several_places() -> None:
    machine = machine_with(
        """
        topics = ["A", "B"]
        [jobs.two]
        start = ["one", "other"]
        tasks.one = { topic = "A" }
        tasks.other = { topic = "B" }
        """
    )
    job = machine.submit("two")
    one(machine, "B")
    assert machine.job(job).state == "running"
    one(machine, "A")
    assert machine.job(job).state == "completed"


@pytest.mark.parametrize(("score", "taken", "skipped"), [(0.7, "fine", "coarse"), (0.2, "coarse", "fine")])
def test_a_condition_chooses_and_the_other_branch_is_skipped(score: float, taken: str, skipped: str) -> None:
    machine = machine_with(CHOICE)
    job = machine.submit("choice")
    [look] = machine.lease("A")
    machine.complete(look, score=score)
    assert one(machine, "B") == taken
    [store] = machine.lease("D")
    assert list(store.results) == [taken]
    machine.complete(store)
    assert machine.task_states(job) == {"look": "done", taken: "done", skipped: "skipped", "store": "done"}
    assert machine.job(job).state == "completed"


def test_a_job_of_which_no_branch_is_taken_has_ended() -> None:
    machine = machine_with(CHOICE)
    job = machine.submit("choice")
    [look] = machine.lease("A")
    assert machine.complete(look).job_state == "completed"
    assert machine.task_states(job) == {"look": "done", "fine": "skipped", "coarse": "skipped", "store": "skipped"}


def test_a_join_of_all_is_skipped_when_one_branch_is() -> None:
    machine = machine_with(
        """
        topics = ["A"]
        [jobs.j]
        start = "a"
        tasks.a = { topic = "A", next = ["b", { task = "c", when = "x = 1" }] }
        tasks.b = { topic = "A", next = "d" }
        tasks.c = { topic = "A", next = "d" }
        tasks.d = { topic = "A", next = "e" }
        tasks.e = { topic = "A" }
        """
    )
    job = machine.submit("j")
    assert [one(machine, "A") for _ in range(2)] == ["a", "b"]
    assert machine.task_states(job) == {"a": "done", "b": "done", "c": "skipped", "d": "skipped", "e": "skipped"}
    assert machine.job(job).state == "completed"


def test_input_and_results_reach_the_next_worker() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain", b"image")
    [load] = machine.lease("A")
    assert (load.input, load.results) == (b"image", {})
    machine.complete(load, b"pixels", width=640)
    [fit] = machine.lease("B")
    assert (fit.input, fit.results) == (b"image", {"load": Result(b"pixels", {"width": 640})})
    assert fit.input is load.input  # stored once


def test_tasks_wait_as_references_in_the_queue_of_their_topic() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain", b"x" * 10_000)
    machine.submit("chain")
    assert machine.bodies("topic.A") == [b"1/load", b"2/load"]
    machine.lease("A", 1)
    figures = machine.ask(DescribeQueue("topic.A"), Described).figures
    assert (figures.visible, figures.in_flight) == (1, 1)


# ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_failed_is_tried_again_after_growing_pauses() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain", now_ms=1_000)
    [first] = machine.lease("A", now_ms=1_010)
    machine.fail(first, "no disk", now_ms=1_020)
    assert machine.lease("A", now_ms=1_119) == []
    [second] = machine.lease("A", now_ms=1_120)
    machine.fail(second, now_ms=1_130)
    assert machine.lease("A", now_ms=1_279) == []  # twice as long, but not above backoff_ms_max
    [third] = machine.lease("A", now_ms=1_280)
    assert [first.attempt, second.attempt, third.attempt] == [1, 2, 3]


def test_a_worker_that_says_nothing_has_its_task_taken_away() -> None:
    machine = machine_with(CHAIN)
    job = machine.submit("chain", now_ms=0)
    [lost] = machine.lease("A", worker="bob", now_ms=10)
    assert lost.deadline_ms == machine.wakeup_ms() == 1_010
    assert machine.lease("A", now_ms=1_109) == []
    [again] = machine.lease("A", now_ms=1_110)
    assert again.attempt == 2
    assert machine.task(job, "load").attempts == [
        AttemptView(0, 10, "bob", 1_010, "timed out", "no report after 1000 ms"),
        AttemptView(1_010, 1_110, "ann", 0, "", ""),
    ]


def test_a_worker_that_asks_for_more_time_gets_it() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain", now_ms=0)
    [slow] = machine.lease("A", now_ms=0)
    assert machine.extend(slow, 5_000, now_ms=900).deadline_ms == 5_900
    assert machine.lease("A", now_ms=5_899) == []
    assert machine.complete(slow, now_ms=5_899).is_new


def test_more_time_may_also_be_less() -> None:
    machine = machine_with(CHAIN)
    machine.submit("chain", now_ms=0)
    [task] = machine.lease("A", now_ms=0)
    machine.extend(task, 10, now_ms=5)
    with pytest.raises(AttemptOver, match="is over: it is timed out"):
        machine.complete(task, now_ms=15)


def fail_for_good(machine: JobMachine, topic: str, now_ms: int, reason: str = "") -> int:
    """All attempts at the task of a topic; the time after them."""
    while tasks := machine.lease(topic, now_ms=now_ms):
        machine.fail(tasks[0], reason)
        now_ms += 100_000
    return now_ms


def test_a_job_fails_with_the_last_attempt_and_leaves_a_dead_letter() -> None:
    machine = machine_with(CHAIN)
    job = machine.submit("chain", b"image", now_ms=0)
    fail_for_good(machine, "A", 0, "no disk")
    view = machine.job(job)
    assert (view.state, view.reason) == ("failed", "task 'load' failed in attempt 3: no disk")
    assert (view.input, len(view.tasks[0].attempts)) == (b"image", 3)
    assert machine.task_states(job) == {"load": "dead", "fit": "waiting", "draw": "waiting"}
    assert machine.bodies("topic.A") == []
    [letter] = machine.bodies("dead.A")
    assert json.loads(letter) == {
        "job": job,
        "type": "chain",
        "name": "",
        "task": "load",
        "attempts": 3,
        "outcome": "failed",
        "reason": "no disk",
        "worker": "ann",
    }


def test_a_final_failure_is_not_tried_again() -> None:
    machine = machine_with(CHAIN)
    job = machine.submit("chain")
    [load] = machine.lease("A")
    assert machine.fail(load, "not an image", is_final=True).job_state == "failed"
    assert machine.job(job).reason == "task 'load' failed in attempt 1: not an image"


def test_a_job_may_go_on_without_a_task() -> None:
    machine = machine_with(
        """
        topics = ["A", "B"]
        [jobs.j]
        start = "a"
        tasks.a = { topic = "A", attempts = 1, on_failure = "continue", next = ["b", { task = "c", when = "x = 1" }] }
        tasks.b = { topic = "B" }
        tasks.c = { topic = "B" }
        """
    )
    job = machine.submit("j")
    fail_for_good(machine, "A", 0)
    [b] = machine.lease("B")
    assert (b.task, b.results) == ("b", {"a": Result()})
    assert machine.complete(b).job_state == "completed"
    assert machine.task_states(job) == {"a": "dead", "b": "done", "c": "skipped"}
    assert len(machine.bodies("dead.A")) == 1


def test_a_job_that_fails_takes_its_other_tasks_with_it() -> None:
    machine = machine_with(DIAMOND)
    job = machine.submit("diamond")
    one(machine, "A")
    [left, right] = machine.lease("B")
    machine.fail(left, is_final=True)
    assert machine.task_states(job) == {"load": "done", "left": "dead", "right": "cancelled", "join": "waiting"}
    assert machine.bodies("topic.B") == []
    with pytest.raises(AttemptOver, match="is over: it is cancelled"):
        machine.complete(right)


def test_a_job_that_takes_too_long_fails() -> None:
    machine = machine_with(CHAIN.replace('start = "load"', 'start = "load"\ntimeout_ms = 60_000'))
    job = machine.submit("chain", now_ms=5)
    one(machine, "A", 10)
    machine.advance(60_004)
    assert machine.job(job).state == "running"
    machine.advance(60_005)
    view = machine.job(job)
    assert (view.state, view.reason, view.ended_ms) == ("failed", "it had not ended after 60000 ms", 60_005)
    assert machine.bodies("topic.B") == []


def test_a_job_can_be_cancelled_once() -> None:
    machine = machine_with(DIAMOND)
    job = machine.submit("diamond")
    one(machine, "A")
    [left] = machine.lease("B", 1)
    assert machine.cancel(job).is_new
    assert not machine.cancel(job).is_new
    assert machine.job(job).state == "cancelled"
    assert machine.task_states(job) == {"load": "done", "left": "cancelled", "right": "cancelled", "join": "waiting"}
    assert machine.bodies("topic.B") == []
    assert machine.wakeup_ms() == 24 * 60 * 60_000  # to forget it
    with pytest.raises(AttemptOver):
        machine.extend(left, 1_000)


def test_the_timeline_tells_when_what_happened() -> None:
    machine = machine_with(CHAIN)
    job = machine.submit("chain", now_ms=10)
    [load] = machine.lease("A", worker="bob", now_ms=20)
    machine.complete(load, now_ms=30)
    machine.lease("B", worker="cid", now_ms=50)
    view = machine.job(job)
    assert (view.submitted_ms, view.ended_ms) == (10, 0)
    assert [task.attempts for task in view.tasks] == [
        [AttemptView(10, 20, "bob", 30, "completed", "")],
        [AttemptView(30, 50, "cid", 0, "", "")],
        [],
    ]
