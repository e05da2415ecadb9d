"""A worker behind RabbitMQ: whatever is delivered again, a task has one slot, and each message is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.workers.benches import in_virtual_time

from lavant.broker.protocol.amqp_messages import Relayed, decode_report, encode
from lavant.broker.protocol.jobs import ExtendTask, Reported, Result, TaskAssignment
from lavant.broker.protocol.queues import Refused
from lavant.client.workers.backends.rabbitmq import RabbitMQBackend
from lavant.client.workers.task import Task
from lavant.core.errors import AttemptOver

AGREED = encode(Reported(is_new=True, job_state="running"))
OVER = encode(Refused(AttemptOver.__name__, "it is over"))
LEASE_S = 30.0


class Message:
    """As RabbitMQ delivers it."""

    def __init__(self, job: int = 1, *, redelivered: bool = False) -> None:
        self.body = encode(Relayed("A", TaskAssignment(job, "one", "a", 1, 0, b"input", {}, 60_000)))
        self.redelivered = redelivered
        self.channel = SimpleNamespace(is_closed=False)
        self.acknowledged = 0

    async def ack(self) -> None:
        self.acknowledged += 1


class FakeLine:
    """Gives the same answer to all, if it has one."""

    def __init__(self, on_answer: Callable[[str, bytes], None]) -> None:
        self._on_answer = on_answer
        self.lost = asyncio.Event()
        self.answer: bytes | None = AGREED
        self.asked = 0
        self.reports: list[bytes] = []

    async def consume(self, topic: str, slots: int) -> None:
        assert (topic, slots) == ("A", 2)

    async def ask(self, body: bytes, number: str, valid_s: float) -> None:
        assert isinstance(decode_report(body).command, ExtendTask)
        assert valid_s == LEASE_S
        self.asked += 1
        if self.answer is not None:
            asyncio.get_running_loop().call_soon(self._on_answer, number, self.answer)

    async def report(self, body: bytes) -> None:
        self.reports.append(body)

    async def close(self) -> None:
        pass


class Bench:
    """A backend whose messages a test delivers."""

    def __init__(self) -> None:
        self.backend = RabbitMQBackend(
            "amqp://guest@127.0.0.1/", "ann", concurrency=2, lease_s=LEASE_S, open_channel=self.open_channel
        )
        self.lines: list[FakeLine] = []
        self._deliver: Callable[[str, Any], None] = lambda *_: None

    async def open_channel(self, url: str, worker: str, on_task: Any, on_answer: Any) -> Any:
        self._deliver = on_task
        self.lines.append(FakeLine(on_answer))
        return self.lines[-1]

    @property
    def line(self) -> FakeLine:
        return self.lines[-1]

    async def leased(self, *messages: Message) -> list[Task | None]:
        """What as many slots get."""
        for message in messages:
            self._deliver("A", message)
        return await asyncio.gather(*(self.backend.lease("A") for _ in messages))

    async def lose(self, *messages: Message) -> None:
        """The connection, on which these were delivered; until there is another."""
        for message in messages:
            message.channel.is_closed = True
        count = len(self.lines)
        self.line.lost.set()
        while len(self.lines) == count:
            await asyncio.sleep(0)


Scenario = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def run() -> Callable[[Scenario], None]:
    async def running(scenario: Scenario) -> None:
        bench = Bench()
        await bench.backend.open()
        await scenario(bench)
        await bench.backend.close()

    return lambda scenario: in_virtual_time(running(scenario))


Run = Callable[[Scenario], None]


def test_a_copy_of_what_is_under_way_is_acknowledged_too(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        messages = [Message(), Message(), Message()]
        [task] = await bench.leased(messages[0])
        assert task is not None
        assert await bench.leased(*messages[1:]) == [None, None]
        await bench.backend.complete(task, Result(b""))
        assert [each.acknowledged for each in messages] == [1, 1, 1]
        assert (bench.line.asked, len(bench.line.reports)) == (1, 1)

    run(scenario)


def test_of_copies_that_come_at_the_same_time_one_is_begun(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        messages = [Message(), Message()]
        tasks = [task for task in await bench.leased(*messages) if task is not None]
        assert len(tasks) == 1
        await bench.backend.complete(tasks[0], Result(b""))
        assert [each.acknowledged for each in messages] == [1, 1]

    run(scenario)


def test_what_is_refused_is_acknowledged_and_may_come_again(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.line.answer = OVER
        messages = [Message(), Message()]
        assert await bench.leased(*messages) == [None, None]
        assert [each.acknowledged for each in messages] == [1, 1]
        bench.line.answer = AGREED
        assert await bench.leased(Message()) != [None]

    run(scenario)


def test_without_an_answer_only_what_no_other_worker_can_have_is_begun(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.line.answer = None
        first, again = Message(1), Message(2, redelivered=True)
        assert await bench.leased(first) != [None]
        assert await bench.leased(again) == [None]
        assert await bench.backend.lease("A") is None, "it is asked for once more"
        assert (bench.line.asked, again.acknowledged) == (3, 0)
        bench.line.answer = AGREED
        task = await bench.backend.lease("A")
        assert task is not None
        assert task.job == 2

    run(scenario)


def test_what_this_worker_has_reported_is_not_begun_again_while_the_server_is_away(run: Run) -> None:
    """RabbitMQ is back before the server is: it delivers again what could not be acknowledged."""

    async def scenario(bench: Bench) -> None:
        message, again = Message(), Message(redelivered=True)
        [task] = await bench.leased(message)
        assert task is not None
        await bench.lose(message)
        await bench.backend.complete(task, Result(b""))
        bench.line.answer = None
        assert await bench.leased(again) == [None]
        bench.line.answer = OVER
        assert await bench.backend.lease("A") is None
        assert again.acknowledged == 1

    run(scenario)


def test_a_task_whose_connection_is_lost_while_it_is_asked_for_is_begun_once(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.line.answer = None
        message, again, last = Message(), Message(redelivered=True), Message(2)
        asking = asyncio.create_task(bench.leased(message))
        while bench.line.asked == 0:
            await asyncio.sleep(0)
        await bench.lose(message)
        assert await bench.leased(again) == [None], "the other slot has it"
        assert await asking == [None], "it had no answer, so it asks again"
        task = await bench.backend.lease("A")
        assert task is not None
        await bench.backend.complete(task, Result(b""))
        assert (message.acknowledged, again.acknowledged) == (1, 1)
        assert await bench.leased(last) != [None]

    run(scenario)


def test_what_nobody_answered_for_before_the_connection_was_lost_is_left_to_rabbitmq(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.line.answer = None
        message = Message()
        asking = asyncio.create_task(bench.leased(message))
        while bench.line.asked == 0:
            await asyncio.sleep(0)
        await bench.lose(message)
        assert await asking == [None]
        assert await bench.backend.lease("A") is None, "it is not here any more"
        assert await bench.leased(Message(redelivered=True)) != [None]

    run(scenario)
