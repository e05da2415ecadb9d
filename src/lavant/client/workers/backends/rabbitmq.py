"""Tasks through RabbitMQ: a worker consumes the queue of its topic, and reports to the queue of the server.

    lavant.topic.A ──delivered──► "I begin" ──► the server agrees ──► the function ──► report ──► ack
                                     ├──► no answer ──► the same if no other worker can have it, else ask again
                                     └──► it is over, or with another worker ──► ack

A report is on disk at RabbitMQ before its task is acknowledged, so none is lost. The first worker of an attempt owns it
at the server, so none counts twice. A worker goes on while RabbitMQ or the server is away; its results wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

from lavant.amqp import call
from lavant.broker.protocol.amqp_messages import (
    AttemptKey,
    Command,
    Report,
    check_address,
    decode_answer,
    decode_relayed,
    encode,
    redacted,
)
from lavant.broker.protocol.jobs import CompleteTask, ExtendTask, FailTask, Reported, Result
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import Refused
from lavant.broker.workflows.request_validation import check_result
from lavant.client.connection.errors import error_of
from lavant.client.connection.retries import Retries
from lavant.client.workers.backend import LEASE_S, POLL_S
from lavant.client.workers.backends.rabbitmq_channel import RabbitMQChannel
from lavant.client.workers.task import Task, task_of
from lavant.core.errors import ConnectionLost, InvalidValue, LavantError

if TYPE_CHECKING:
    from aio_pika.abc import AbstractIncomingMessage

ANSWER_S_MAX = 5.0
"""How long to wait for the server's answer; without one, the worker relies on its lease."""
UNASKED_S = 2.0
"""A task that no slot takes within this time is returned: the worker is about to end."""
PATIENCE = Retries(within_s=math.inf, first_s=0.2, longest_s=2.0)

_logger = logging.getLogger(__name__)


class RabbitMQBackend:
    """`worker` must be a unique name. `concurrency` slots take tasks of each topic."""

    def __init__(
        self,
        url: str,
        worker: str,
        *,
        concurrency: int = 1,
        lease_s: float = LEASE_S,
        open_channel: Callable[..., Awaitable[RabbitMQChannel]] = RabbitMQChannel.open,
    ) -> None:
        self._url = check_address(url)
        self._worker = worker
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._open_channel = open_channel
        self._channel: RabbitMQChannel | None = None
        self._there = asyncio.Condition()
        self._mending: asyncio.Task[None] | None = None
        self._inbox: defaultdict[str, asyncio.Queue[AbstractIncomingMessage]] = defaultdict(asyncio.Queue)
        self._held: dict[AttemptKey, AbstractIncomingMessage] = {}
        """Running tasks, with the delivery to acknowledge."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._awaited: dict[str, asyncio.Future[Reported | Refused]] = {}

    async def open(self) -> None:
        """Raises if RabbitMQ does not answer or denies access; later failures are retried."""
        self._channel = await self._opened()
        self._mending = asyncio.create_task(self._mend(), name="connection to RabbitMQ")

    async def close(self) -> None:
        """Returns delivered and unreported tasks to RabbitMQ."""
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.wait([self._mending])
        if self._channel is not None:
            await self._channel.close()

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def lease(self, topic: str) -> Task | None:
        channel = self._channel
        if channel is None:
            await asyncio.sleep(POLL_S)
            return None
        try:
            await channel.consume(topic, self._concurrency)
            async with asyncio.timeout(POLL_S):
                message = await self._inbox[topic].get()
        except (ConnectionLost, TimeoutError):
            return None
        return await self._begun(message)

    async def complete(self, task: Task, result: Result) -> None:
        check_result(result)
        await self._settle(task, CompleteTask(task.job, task.name, task.attempt, result))

    async def fail(self, task: Task, reason: str, *, is_final: bool = False) -> None:
        await self._settle(task, FailTask(task.job, task.name, task.attempt, reason, is_final))

    async def extend(self, task: Task, seconds: float) -> None:
        """Without an answer, the worker only knows that the server has named no other owner."""
        key = AttemptKey(task.job, task.name, task.attempt)
        try:
            await self._ask(task.topic, key, seconds)
        except LavantError:
            await self._acknowledge(self._held.pop(key, None))
            raise

    async def _begun(self, message: AbstractIncomingMessage) -> Task | None:
        """The task in a message, if this worker may run it."""
        try:
            relayed = decode_relayed(message.body)
        except InvalidValue as error:
            _logger.warning("%s; it is dropped", error)
            await self._acknowledge(message)
            return None
        key, given = relayed.key, relayed.assignment
        older, self._held[key] = self._held.get(key), message
        if older is not None:  # a duplicate, for example after a lost connection: a slot has it already
            await self._acknowledge(older)
            return None
        try:
            is_answered = await self._ask(relayed.topic, key, self._lease_s)
        except LavantError as error:
            _logger.info("%s", error)
            await self._acknowledge(self._held.pop(key))
            return None
        if not is_answered and not self._is_first(self._held[key]):
            self._put_back(relayed.topic, self._held.pop(key))
            return None
        return task_of(given, relayed.topic)

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _settle(self, task: Task, command: Command) -> None:
        """Returns when the report is durable. The server alone decides whether it came too late."""
        body = encode(Report(task.topic, self._worker, command))
        while True:
            channel = await self._connected()
            try:
                await channel.report(body)
                break
            except ConnectionLost as error:
                _logger.debug("a report has to be sent again: %s", error)
                await asyncio.sleep(PATIENCE.first_s)
        await self._acknowledge(self._held.pop(AttemptKey(command.job, command.task, command.attempt), None))

    async def _ask(self, topic: str, key: AttemptKey, seconds: float) -> bool:
        """Extends the lease; False without an answer. Raises the refusal of the server."""
        channel = self._channel
        if channel is None:
            return False
        number, command = str(next(self._numbers)), ExtendTask(*key, max(1, round(seconds * SECOND_MS)))
        answer = self._awaited[number] = asyncio.get_running_loop().create_future()
        try:
            await channel.ask(encode(Report(topic, self._worker, command)), number, seconds)
            answered = await asyncio.wait_for(answer, min(ANSWER_S_MAX, seconds))
        except (ConnectionLost, TimeoutError):
            return False
        finally:
            del self._awaited[number]
        if isinstance(answered, Refused):
            raise error_of(answered)
        return True

    def _on_answer(self, number: str, body: bytes) -> None:
        answer = self._awaited.get(number)
        if answer is not None and not answer.done():
            answer.set_result(decode_answer(body))

    async def _acknowledge(self, message: AbstractIncomingMessage | None) -> None:
        """Acknowledges a task. If the connection is lost, it comes again, and the server says that it is over."""
        if message is not None:
            with contextlib.suppress(ConnectionLost):
                await call(message.ack())

    # ── what is delivered ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_task(self, topic: str, message: AbstractIncomingMessage) -> None:
        inbox = self._inbox[topic]
        inbox.put_nowait(message)
        asyncio.get_running_loop().call_later(UNASKED_S, self._leave_if_unasked, topic, inbox)

    def _is_first(self, message: AbstractIncomingMessage) -> bool:
        """Whether no other worker can have this task: it was delivered once, on the connection that is still open."""
        return not message.redelivered and not message.channel.is_closed

    def _put_back(self, topic: str, message: AbstractIncomingMessage) -> None:
        """Keeps a task for the next slot; after a lost connection, RabbitMQ delivers it again."""
        if not message.channel.is_closed:
            self._on_task(topic, message)

    def _leave_if_unasked(self, topic: str, inbox: asyncio.Queue[AbstractIncomingMessage]) -> None:
        if not inbox.empty() and self._inbox[topic] is inbox:
            leaving = asyncio.create_task(self._leave(topic))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _leave(self, topic: str) -> None:
        """Cancels the consumer and returns its tasks when no slot asks; the next slot that asks starts it again."""
        inbox = self._inbox.pop(topic)
        with contextlib.suppress(ConnectionLost):
            if self._channel is not None:
                await self._channel.leave(topic)
            while not inbox.empty():
                await call(inbox.get_nowait().nack(requeue=True))

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _opened(self) -> RabbitMQChannel:
        return await self._open_channel(self._url, self._worker, self._on_task, self._on_answer)

    async def _connected(self) -> RabbitMQChannel:
        async with self._there:
            await self._there.wait_for(lambda: self._channel is not None)
        assert self._channel is not None
        return self._channel

    async def _mend(self) -> None:
        """Reconnects whenever the connection is lost."""
        while True:
            assert self._channel is not None
            await self._channel.lost.wait()
            lost, self._channel = self._channel, None
            self._inbox.clear()  # RabbitMQ delivers it again, to any worker
            await lost.close()
            channel = await self._opened_again()
            async with self._there:
                self._channel = channel
                self._there.notify_all()
            _logger.warning("RabbitMQ is back at %s", redacted(self._url))

    async def _opened_again(self) -> RabbitMQChannel:
        is_told = False
        for pause_s in PATIENCE.pauses_s():
            try:
                return await self._opened()
            except LavantError as error:
                if not is_told:
                    _logger.warning("%s; retrying", error)
                is_told = True
                await asyncio.sleep(pause_s)
        raise AssertionError("patience has no end")
