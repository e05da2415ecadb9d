"""Jobs as bytes and back, and as the journal tells them."""

from __future__ import annotations

import pytest
from tests.unit.broker.workflows.hubs import CHAIN, CHOICE, DIAMOND, Hub, hub_with, saved

from lavant.broker.protocol.jobs import DefineJobs, JobTypesListed, KeepJobs, ListJobTypes, RemoveJobType, SubmitJob
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Done, Send, SendEntry
from lavant.broker.queues.machine import Queues
from lavant.broker.workflows import snapshot
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.limits import JobLimits
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import CorruptSnapshot, LimitExceeded


def busy() -> Hub:
    """Jobs in every state, old definitions among them."""
    hub = hub_with(CHAIN)
    hub.define(DIAMOND)
    hub.ask(KeepJobs(ms_max=50_000_000), Done)
    for number in range(12):
        hub.submit("chain", b"input %d" % number, f"name {number}" if number % 2 else "", now_ms=number)
    for task in hub.lease("A", 6, now_ms=50):
        hub.complete(task, b"result", score=task.job)
    [first, second, *_] = hub.lease("A", 4, now_ms=60)
    hub.fail(first, "broken")
    hub.fail(second, "broken", is_final=True)
    hub.complete(hub.lease("B", 1, now_ms=70)[0])
    hub.complete(hub.lease("D", 1)[0], b"picture", fine=True)
    hub.cancel(2)
    hub.submit("diamond")
    hub.define(CHAIN.replace("attempts = 3", "attempts = 5"))
    hub.submit("chain")
    hub.ask(RemoveJobType("diamond"), Done)
    return hub


def test_a_restored_hub_is_the_same_and_goes_on_alike() -> None:
    hub = busy()
    chunks = list(hub.snapshot())
    other = Hub.restore(chunks)
    assert list(other.snapshot()) == chunks
    assert (other.wakeup_ms(), other.running) == (hub.wakeup_ms(), hub.running)
    for each in (hub, other):
        assert isinstance(each, Hub)
        each.advance(5_000)
        for topic in "ABD":
            for task in each.lease(topic, 3):
                each.complete(task, score=1)
        each.advance(200_000)
        assert each.submit("chain", b"input 3", name="name 3") == 4
    assert saved(other) == saved(hub)


def test_limits_are_those_of_the_restored_hub() -> None:
    hub = Jobs.restore(busy().snapshot(), job_limits=JobLimits(running_max=1))
    with pytest.raises(LimitExceeded):
        hub.handle(SubmitJob("chain"), 100)


def test_a_replay_gives_the_same_state() -> None:
    hub = busy()
    assert saved(hub.replayed()) == saved(hub)


def test_it_does_not_matter_how_often_time_was_told() -> None:
    often, once = busy(), busy()
    for now_ms in range(100, 70_000, 37):
        often.advance(now_ms)
    for hub in (often, once):
        hub.advance(70_000)
    assert saved(often) == saved(once)


def test_a_snapshot_of_queues_alone_will_do() -> None:
    queues = Queues()
    queues.handle(CreateQueue("orders", QueueConfig()), 0)
    queues.handle(Send("orders", [SendEntry(b"tea")]), 1)
    hub = Jobs.restore(queues.snapshot())
    assert hub.exists("orders")
    assert hub.handle(ListJobTypes(), 2) == JobTypesListed([], [])
    hub.handle(DefineJobs(read_workflows(CHOICE)), 2)


def test_the_widest_join_fits() -> None:
    wide = "".join(f'tasks.t{place} = {{ topic = "A", next = "join" }}\n' for place in range(63))
    start = [f"t{place}" for place in range(63)]
    hub = hub_with(f'topics = ["A"]\n[jobs.wide]\nstart = {start}\n{wide}tasks.join = {{ topic = "A" }}\n')
    hub.submit("wide")
    for task in hub.lease("A", 100):
        hub.complete(task)
    other = Hub.restore(hub.snapshot())
    assert isinstance(other, Hub)
    [join] = other.lease("A")
    assert sorted(join.results) == sorted(start)


def test_many_jobs_take_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "CHUNK_BYTES", 500)
    hub = busy()
    chunks = list(hub.snapshot())
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
