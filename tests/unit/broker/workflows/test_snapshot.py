"""Jobs as bytes and back, and as the journal tells them."""

from __future__ import annotations

import pytest
from tests.unit.broker.workflows.machines import CHAIN, CHOICE, DIAMOND, JobMachine, machine_with, saved

from lavant.broker.protocol.jobs import DefineJobs, JobTypesListed, KeepJobs, ListJobTypes, RemoveJobType, SubmitJob
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Done, Send, SendEntry
from lavant.broker.queues.machine import Queues
from lavant.broker.workflows import snapshot
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.limits import JobLimits
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import CorruptSnapshot, LimitExceeded


def busy() -> JobMachine:
    """Jobs in every state, old definitions among them."""
    machine = machine_with(CHAIN)
    machine.define(DIAMOND)
    machine.ask(KeepJobs(ms_max=50_000_000), Done)
    for number in range(12):
        machine.submit("chain", b"input %d" % number, f"name {number}" if number % 2 else "", now_ms=number)
    for task in machine.lease("A", 6, now_ms=50):
        machine.complete(task, b"result", score=task.job)
    [first, second, *_] = machine.lease("A", 4, now_ms=60)
    machine.fail(first, "broken")
    machine.fail(second, "broken", is_final=True)
    machine.complete(machine.lease("B", 1, now_ms=70)[0])
    machine.complete(machine.lease("D", 1)[0], b"picture", fine=True)
    machine.cancel(2)
    machine.submit("diamond")
    machine.define(CHAIN.replace("attempts = 3", "attempts = 5"))
    machine.submit("chain")
    machine.ask(RemoveJobType("diamond"), Done)
    return machine


def test_a_restored_machine_is_the_same_and_goes_on_alike() -> None:
    machine = busy()
    chunks = list(machine.snapshot())
    other = JobMachine.restore(chunks)
    assert list(other.snapshot()) == chunks
    assert (other.wakeup_ms(), other.running) == (machine.wakeup_ms(), machine.running)
    for each in (machine, other):
        assert isinstance(each, JobMachine)
        each.advance(5_000)
        for topic in "ABD":
            for task in each.lease(topic, 3):
                each.complete(task, score=1)
        each.advance(200_000)
        assert each.submit("chain", b"input 3", name="name 3") == 4
    assert saved(other) == saved(machine)


def test_limits_are_those_of_the_restored_machine() -> None:
    machine = Jobs.restore(busy().snapshot(), job_limits=JobLimits(running_max=1))
    with pytest.raises(LimitExceeded):
        machine.handle(SubmitJob("chain"), 100)


def test_a_replay_gives_the_same_state() -> None:
    machine = busy()
    assert saved(machine.replayed()) == saved(machine)


def test_it_does_not_matter_how_often_time_was_told() -> None:
    often, once = busy(), busy()
    for now_ms in range(100, 70_000, 37):
        often.advance(now_ms)
    for machine in (often, once):
        machine.advance(70_000)
    assert saved(often) == saved(once)


def test_a_snapshot_of_queues_alone_will_do() -> None:
    queues = Queues()
    queues.handle(CreateQueue("orders", QueueConfig()), 0)
    queues.handle(Send("orders", [SendEntry(b"tea")]), 1)
    machine = Jobs.restore(queues.snapshot())
    assert machine.exists("orders")
    assert machine.handle(ListJobTypes(), 2) == JobTypesListed([], [])
    machine.handle(DefineJobs(read_workflows(CHOICE)), 2)


def test_the_widest_join_fits() -> None:
    wide = "".join(f'tasks.t{place} = {{ topic = "A", next = "join" }}\n' for place in range(63))
    start = [f"t{place}" for place in range(63)]
    machine = machine_with(f'topics = ["A"]\n[jobs.wide]\nstart = {start}\n{wide}tasks.join = {{ topic = "A" }}\n')
    machine.submit("wide")
    for task in machine.lease("A", 100):
        machine.complete(task)
    other = JobMachine.restore(machine.snapshot())
    assert isinstance(other, JobMachine)
    [join] = other.lease("A")
    assert sorted(join.results) == sorted(start)


def test_many_jobs_take_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "CHUNK_BYTES", 500)
    machine = busy()
    chunks = list(machine.snapshot())
    assert len([chunk for chunk in chunks if b"running-jobs" in chunk]) > 1
    assert len([chunk for chunk in chunks if b"ended-jobs" in chunk]) > 1
    assert list(Jobs.restore(chunks).snapshot()) == chunks


def test_damage_is_noticed() -> None:
    chunks = list(busy().snapshot())
    end = next(place for place, chunk in enumerate(chunks) if b"jobs-end" in chunk)
    running = next(place for place, chunk in enumerate(chunks) if b"running-jobs" in chunk)
    damaged = [
        chunks[:end],
        chunks[:running] + chunks[running + 1 :],
        [*chunks[:running], b"\xc1", *chunks[running + 1 :]],
        [chunks[0], *chunks],
        [chunks[0].replace(b"jobs\x01", b"jobs\x02"), *chunks[1:]],
        [],
    ]
    for each in damaged:
        with pytest.raises(CorruptSnapshot):
            Jobs.restore(each)
