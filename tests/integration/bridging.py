"""A service with a bridge to RabbitMQ, and workers behind it, in one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aio_pika

from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.amqp_messages import REPORTS, task_queue
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.jobs import DefineJobs, DescribeJob, JobSubmitted, JobView, SubmitJob
from lavant.broker.workflows.definitions.definition import queue_of
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.client.workers.backends.rabbitmq import RabbitMQBackend
from lavant.client.workers.functions import Handler
from lavant.client.workers.task import Task
from lavant.client.workers.worker import Worker
from lavant.service.engines.local import LocalEngine
from lavant.service.observability.metrics import figures_of
from lavant.service.rabbitmq.bridge import RabbitMQBridge
from lavant.service.rabbitmq.settings import RabbitMQSettings
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.clock import ServerClock
from lavant.service.storage.stores import open_store

WAIT_S_MAX = 60.0

ONE_TASK = """
topics = ["A"]
[jobs.one]
start = "a"
tasks.a = { topic = "A", attempts = 2, backoff_ms = 0 }
"""
TWO_TASKS = """
topics = ["A", "B"]
[jobs.two]
start = "a"
tasks.a = { topic = "A", next = "b" }
tasks.b = { topic = "B" }
"""


class Bridged:
    def __init__(self, service: BrokerRuntime, broker: BrokerState, bridge: RabbitMQBridge) -> None:
        self._service = service
        self._broker = broker
        self.bridge = bridge

    async def ask(self, request: Request) -> Answer:
        return await self._service.execute(request)

    async def submit(self, job_type: str, *inputs: bytes) -> list[int]:
        answers = await asyncio.gather(*(self.ask(SubmitJob(job_type, each)) for each in inputs))
        return [answer.job for answer in answers if isinstance(answer, JobSubmitted)]

    async def job(self, number: int) -> JobView:
        view = await self.ask(DescribeJob(number))
        assert isinstance(view, JobView)
        return view

    async def ended(self, *numbers: int) -> list[JobView]:
        views = []
        for number in numbers:
            while (view := await self.job(number)).state == "running":
                await asyncio.sleep(0.02)
            views.append(view)
        return views

    def waiting(self, topic: str) -> int:
        """Tasks that the server has not given to anybody."""
        return figures_of(self._broker.queues, queue_of(topic)).visible


@asynccontextmanager
async def bridged(url: str, workflow: str, *, lease_s: float = 30.0, ahead: float = 1.0) -> AsyncIterator[Bridged]:
    loop = asyncio.get_running_loop()
    broker, store = BrokerState(), open_store(None)
    service = BrokerRuntime(
        BrokerMachine(broker),
        LocalEngine(slices=1),
        store,
        ServerClock(),
        on_failed=lambda error: loop.call_exception_handler({"message": "the service failed", "exception": error}),
    )
    service.begin()
    bridge = RabbitMQBridge(service, RabbitMQSettings(url=url, lease_s=lease_s, ahead=ahead))
    try:
        await service.execute(DefineJobs(read_workflows(workflow)))
        bridge.start()
        yield Bridged(service, broker, bridge)
    finally:
        await bridge.stop()
        service.release()
        await service.stop()


@asynccontextmanager
async def working(
    url: str,
    *functions: tuple[str, Callable[[Task], Any]],
    name: str = "w",
    concurrency: int = 1,
    lease_s: float = 30.0,
) -> AsyncIterator[Worker]:
    """A worker, until the end of the block; then it is drained."""
    backend = RabbitMQBackend(url, name, concurrency=concurrency, lease_s=lease_s)
    await backend.open()
    worker = Worker(backend, [Handler(*each) for each in functions], concurrency=concurrency, lease_s=lease_s)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.drain()
        await running
        await backend.close()


class Work:
    """A function for tasks that counts how often it did each, and can be held up."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.done: Counter[bytes] = Counter()
        self.begun: Counter[bytes] = Counter()
        self.free = asyncio.Event()
        if not is_held:
            self.free.set()

    async def __call__(self, task: Task) -> bytes:
        self.begun[task.input] += 1
        await self.free.wait()
        self.done[task.input] += 1
        return task.input.upper()

    @property
    def function(self) -> Callable[[Task], Awaitable[bytes]]:
        async def work(task: Task) -> bytes:
            return await self(task)

        return work


@asynccontextmanager
async def channel(url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield await connection.channel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, WAIT_S_MAX))


async def forget(url: str, *topics: str) -> None:
    """Delete what a test has left."""
    async with channel(url) as open_:
        for name in (REPORTS, *map(task_queue, topics)):
            await open_.queue_delete(name)
