"""Clients that hang up at any moment keep nothing: what they did not get is visible at once, and was never received."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.machine.servers import Bench

from lavant.broker.machine.effects import Effect, Reply
from lavant.broker.protocol.jobs import DefineJobs, DescribeJob, JobView, LeaseTasks, SubmitJob, TasksLeased
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Peek, Peeked, Received
from lavant.broker.workflows.definitions.toml_file import convert_workflows

WORKFLOW = {"topics": ["T"], "jobs": {"j": {"start": "t", "tasks": {"t": {"topic": "T"}}}}}
HOUR_MS = 3_600_000
CONFIGS = {
    "plain": QueueConfig(visibility_ms=HOUR_MS),
    "ordered": QueueConfig(visibility_ms=HOUR_MS, order="in-order"),
}
CLIENTS = ("ann", "bob", "cid")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "receive", "poll", "submit", "lease", "commit", "commit some", "hang up", "lose"]),
        st.integers(0, 5),
        st.sampled_from(sorted(CONFIGS)),
    ),
    max_size=60,
)


class Losing(Bench):
    """A world whose connections may be lost between a reply and its handing over: `lost` takes the next leases."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0
        self.heard_leases: list[Reply] = []
        self._left: dict[Hashable, int] = {}
        """Who hung up, and the last number that was asked by then."""

    def hang_up(self, client: str) -> None:
        self.server.gone(client)
        self._left[client] = self.numbers

    def perform(self, effects: list[Effect]) -> list[tuple[Hashable, int]]:
        kept: list[Effect] = []
        returned: list[Reply] = []
        for effect in effects:
            if isinstance(effect, Reply) and effect.queue and self.lost:
                self.lost -= 1
                returned.append(effect)
            else:
                kept.append(effect)
                if isinstance(effect, Reply) and effect.queue:
                    assert effect.number > self._left.get(effect.client, 0), "a lease for somebody who is gone"
                    self.heard_leases.append(effect)
        answered = super().perform(kept)
        for reply in returned:
            answered += self.perform(self.server.undelivered(reply, self.now_ms))
        return answered


def run(steps: list[tuple[str, int, str]]) -> Losing:
    world = Losing()
    for name, config in CONFIGS.items():
        world.create(name, config)
    world.do(DefineJobs(convert_workflows(WORKFLOW)), object)
    sent = 0
    for step, number, queue in steps:
        world.now_ms += 1
        client = CLIENTS[number % 3]
        match step:
            case "send":
                sent += 1
                world.send(b"%d" % sent, queue=queue)
            case "receive" | "poll":
                world.receive(client, queue=queue, count=1 + number, wait_ms=0 if step == "receive" else 20_000)
            case "submit":
                world.ask(SubmitJob("j"), "boss")
            case "lease":
                world.ask(LeaseTasks("T", f"worker {number}", 1 + number, 20_000), client)
            case "commit":
                world.commit()
            case "commit some":
                world.commit(min(world.durable + number, len(world.records)))
            case "hang up":
                world.hang_up(client)  # and comes again
            case "lose":
                world.lost += 1
    for client in CLIENTS:
        world.hang_up(client)
    world.lost = 0
    world.commit()
    world.commit()
    return world


def check(world: Losing) -> None:
    had: dict[tuple[str, int], int] = {}
    tasks: set[tuple[int, int]] = set()
    for reply in world.heard_leases:
        if isinstance(reply.answer, Received):
            for delivery in reply.answer.deliveries:
                place = (reply.queue, delivery.receipt.number)
                had[place] = had.get(place, 0) + 1
                assert delivery.receive_count == had[place], "what nobody got does not count"
        elif isinstance(reply.answer, TasksLeased):
            for task in reply.answer.tasks:
                assert (task.job, task.attempt) not in tasks, "an attempt is for one worker only"
                tasks.add((task.job, task.attempt))
                assert task.attempt == 1
    for queue in CONFIGS:
        for message in world.do(Peek(queue, 1000), Peeked).messages:
            count = had.get((queue, message.number), 0)
            assert (message.receive_count, message.state == "in flight") == (count, bool(count)), message
    for job in range(1, world.server.queues.running + 1):
        [task_view] = world.do(DescribeJob(job), JobView).tasks
        is_out = (job, 1) in tasks
        assert (task_view.state == "running", bool(task_view.attempts[0].worker)) == (is_out, is_out), task_view
    replayed = world.replayed()
    assert b"".join(replayed.snapshot()) == b"".join(world.server.queues.snapshot())


@given(STEPS)
def test_what_was_not_handed_over_was_never_leased(steps: list[tuple[str, int, str]]) -> None:
    check(run(steps))


@pytest.mark.soak
@settings(deadline=None, max_examples=20_000)
@given(STEPS)
def test_what_was_not_handed_over_was_never_leased_soak(steps: list[tuple[str, int, str]]) -> None:
    check(run(steps))


def test_a_message_that_was_leased_to_somebody_who_is_gone_is_for_the_next() -> None:
    world = Losing()
    world.create("plain", CONFIGS["plain"])
    world.receive("ann", queue="plain", wait_ms=20_000)
    world.send(b"one", queue="plain")
    world.hang_up("ann")  # it was given the message, which is not durable yet
    waiting = world.receive("bob", queue="plain", wait_ms=20_000)
    world.commit()
    world.commit()
    assert world.bodies(waiting, "bob") == [b"one"]
