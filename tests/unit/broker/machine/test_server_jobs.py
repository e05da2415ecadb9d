"""Jobs in the server: what is durable before it is answered, who waits for tasks, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Hashable

from tests.unit.broker.machine.servers import Bench
from tests.unit.broker.workflows.machines import CHAIN, saved

from lavant.broker.machine.effects import Record
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.jobs import (
    CompleteTask,
    DefineJobs,
    DescribeJob,
    FailTask,
    JobSubmitted,
    JobView,
    LeaseTasks,
    Reported,
    SubmitJob,
    TaskAssignment,
    TasksLeased,
)
from lavant.broker.protocol.queues import Refused
from lavant.broker.workflows.definitions.toml_file import read_workflows


def bench_with_chain() -> Bench:
    bench = Bench()
    bench.ask(DefineJobs(read_workflows(CHAIN)))
    bench.commit()
    return bench


def leased(bench: Bench, number: int, client: Hashable = "ann") -> list[TaskAssignment] | None:
    """What a lease brought; None if it is not answered."""
    answer = bench.answer(number, client)
    assert answer is None or isinstance(answer, TasksLeased), answer
    return None if answer is None else answer.tasks


def lease(bench: Bench, topic: str = "A", client: Hashable = "ann", wait_ms: int = 0) -> int:
    return bench.ask(LeaseTasks(topic, str(client), 1, wait_ms), client)


def test_a_submission_is_durable_before_it_is_answered() -> None:
    bench = bench_with_chain()
    number = bench.ask(SubmitJob("chain"))
    assert bench.answer(number) is None
    bench.commit()
    assert bench.answer(number) == JobSubmitted(1, is_new=True)


def test_a_lease_is_durable_before_it_is_answered() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    number = lease(bench)
    assert leased(bench, number) is None
    bench.commit()
    assert [task.task for task in leased(bench, number) or []] == ["load"]


def test_a_report_and_what_follows_from_it_are_one_record() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    [load] = bench.do(LeaseTasks("A", "ann"), TasksLeased).tasks
    before = len(bench.records)
    report = CompleteTask(load.job, load.task, load.attempt)
    bench.do(report, Reported)
    assert bench.commands()[before:] == [report]
    queues = bench.replayed()
    assert saved(queues) == saved(bench.server.queues)
    assert not queues.visible("topic.A", bench.now_ms)
    assert queues.visible("topic.B", bench.now_ms)


def test_a_repeated_report_is_not_recorded() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    [load] = bench.do(LeaseTasks("A", "ann"), TasksLeased).tasks
    report = CompleteTask(load.job, load.task, load.attempt)
    bench.do(report, Reported)
    before = len(bench.records)
    assert not bench.do(report, Reported).is_new
    assert len(bench.records) == before


def test_workers_wait_for_tasks_and_the_first_is_served_first() -> None:
    bench = bench_with_chain()
    bob, cid = lease(bench, client="bob", wait_ms=500), lease(bench, client="cid", wait_ms=500)
    bench.ask(SubmitJob("chain"))
    bench.commit()
    assert [task.job for task in leased(bench, bob, "bob") or []] == [1]
    assert leased(bench, cid, "cid") is None
    bench.tick(500)
    assert leased(bench, cid, "cid") == []


def test_who_waits_gets_the_task_that_follows() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    [load] = bench.do(LeaseTasks("A", "ann"), TasksLeased).tasks
    waiting = lease(bench, "B", "bob", wait_ms=1_000)
    bench.ask(CompleteTask(load.job, load.task, load.attempt))
    assert leased(bench, waiting, "bob") is None
    bench.commit()
    assert [task.task for task in leased(bench, waiting, "bob") or []] == ["fit"]


def test_who_waits_gets_what_a_silent_worker_had() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    bench.do(LeaseTasks("A", "ann"), TasksLeased)
    waiting = lease(bench, "A", "bob", wait_ms=5_000)
    for _ in range(2):  # the attempt's time is up, the pause before the next one is over
        wakeup_ms = bench.server.wakeup_ms()
        assert wakeup_ms is not None
        bench.tick(wakeup_ms)
    assert bench.now_ms == 1_100
    bench.commit()
    assert [task.attempt for task in leased(bench, waiting, "bob") or []] == [2]


def test_a_receiver_of_dead_letters_is_served_when_one_comes() -> None:
    bench = bench_with_chain()
    waiting = bench.receive("bob", queue="dead.A", wait_ms=5_000)
    bench.do(SubmitJob("chain"), JobSubmitted)
    [load] = bench.do(LeaseTasks("A", "ann"), TasksLeased).tasks
    bench.ask(FailTask(load.job, load.task, load.attempt, "no disk", is_final=True))
    assert bench.bodies(waiting, "bob") is None
    bench.commit()
    [letter] = bench.bodies(waiting, "bob") or []
    assert b"no disk" in letter


def test_a_dead_letter_that_time_made_is_received_when_all_before_it_is_durable() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    for _ in range(3):
        bench.do(LeaseTasks("A", "ann"), TasksLeased)
        bench.tick(bench.now_ms + 1_000)
        bench.tick(bench.now_ms + 1_000)
    number = bench.receive(queue="dead.A")
    assert bench.bodies(number) is None
    bench.commit()
    [letter] = bench.bodies(number) or []
    assert b"timed out" in letter


def test_a_full_disk_takes_no_new_jobs_but_those_under_way_go_on() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain"), JobSubmitted)
    bench.server.is_full = True
    assert bench.do(SubmitJob("chain"), Refused).code == "StorageFull"
    [load] = bench.do(LeaseTasks("A", "ann"), TasksLeased).tasks
    assert bench.do(CompleteTask(load.job, load.task, load.attempt), Reported).is_new


def test_those_who_wait_are_told_of_the_end_of_the_server() -> None:
    bench = bench_with_chain()
    waiting = lease(bench, wait_ms=5_000)
    bench.perform(bench.server.stop(1))
    assert leased(bench, waiting) == []


def test_after_a_restart_a_job_is_where_it_was() -> None:
    bench = bench_with_chain()
    bench.do(SubmitJob("chain", b"image"), JobSubmitted)
    bench.do(LeaseTasks("A", "ann"), TasksLeased)
    broker = BrokerState(bench.replayed())
    again = BrokerMachine(broker, position=len(bench.records))
    [opened] = again.open(bench.now_ms)
    assert isinstance(opened, Record)
    again.committed(opened.position, bench.now_ms)
    effects = again.request("ann", 1, CompleteTask(1, "load", 1), None, bench.now_ms)
    assert [type(effect).__name__ for effect in effects] == ["Record"]
    view = broker.handle(DescribeJob(1), bench.now_ms)
    assert isinstance(view, JobView)
    assert [task.state for task in view.tasks] == ["done", "queued", "waiting"]
