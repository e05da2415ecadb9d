"""A worker's connection to RabbitMQ, from when it is made to when it is lost: the only file of the client with AMQP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lavant.broker.workflows.relay import (
    CONTENT_TYPE,
    QUEUE_ARGUMENTS,
    REPORTS,
    locked_out,
    task_queue,
    unreachable,
    without_library,
)

try:
    import aio_pika
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
    from aio_pika.exceptions import (
        CONNECTION_EXCEPTIONS,
        AuthenticationError,
        InvalidFrameError,
        ProbableAuthenticationError,
    )
except ImportError:  # an extra
    raise without_library() from None

CALL_S_MAX = 10.0
"""For RabbitMQ to answer, or to confirm a report."""
HEARTBEAT_S = 10

LOST = (*CONNECTION_EXCEPTIONS, TimeoutError)
"""What a call raises when the connection is gone, or RabbitMQ has closed it."""

_ANSWERS = "amq.rabbitmq.reply-to"
"""RabbitMQ's own way back to who asked; it needs no queue."""

for _name in ("aiormq", "aio_pika"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they raise is told once, with what to do about it


class Line:
    """`on_task` gets what is delivered, `on_answer` gets (correlation id, body)."""

    def __init__(
        self,
        connection: AbstractConnection,
        tasks: AbstractChannel,
        reports: AbstractChannel,
        on_task: Callable[[str, AbstractIncomingMessage], None],
    ) -> None:
        self._connection = connection
        self._tasks = tasks
        self._reports = reports
        self._on_task = on_task
        self._consumers: dict[str, list[tuple[AbstractQueue, str]]] = {}
        self.lost = asyncio.Event()

    @classmethod
    async def open(
        cls,
        url: str,
        worker: str,
        on_task: Callable[[str, AbstractIncomingMessage], None],
        on_answer: Callable[[str, bytes], None],
    ) -> Line:
        """Raises `MissingComponent` or `AccessDenied`."""
        try:
            connection = await aio_pika.connect(
                url,
                timeout=CALL_S_MAX,
                heartbeat=HEARTBEAT_S,
                client_properties={"connection_name": f"lavant worker {worker}"},
            )
        except (AuthenticationError, ProbableAuthenticationError) as error:
            raise locked_out(url, str(error)) from None
        except InvalidFrameError:  # it hangs up instead of opening the virtual host
            raise locked_out(url, "the virtual host is not there, or not for this user") from None
        except LOST as error:
            raise unreachable(url, error) from None
        try:
            line = cls(connection, await connection.channel(), await connection.channel(on_return_raises=True), on_task)
            await line._prepare(on_answer)
        except LOST as error:
            await connection.close()
            raise locked_out(url, str(error)) from None
        return line

    async def _prepare(self, on_answer: Callable[[str, bytes], None]) -> None:
        async def answered(message: AbstractIncomingMessage) -> None:
            on_answer(message.correlation_id or "", message.body)

        await self._tasks.set_qos(prefetch_count=1)  # of each consumer, and each is a slot
        await self._reports.declare_queue(REPORTS, durable=True, arguments=dict(QUEUE_ARGUMENTS))
        answers = await self._reports.get_queue(_ANSWERS, ensure=False)
        await answers.consume(answered, no_ack=True)
        for channel in (self._tasks, self._reports):
            channel.close_callbacks.add(self._set_lost)
        below = await self._tasks.get_underlay_channel()
        below.on_consumer_cancel_callbacks.add(self._set_lost)  # somebody has deleted a queue

    def _set_lost(self, *_: object) -> None:
        self.lost.set()

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def consume(self, topic: str, slots: int) -> None:
        """Have tasks delivered, one for each slot; the next when the one before is acknowledged."""
        if topic in self._consumers:
            return
        consumers = self._consumers[topic] = []

        async def delivered(message: AbstractIncomingMessage) -> None:
            self._on_task(topic, message)

        queue = await self._tasks.declare_queue(task_queue(topic), durable=True, arguments=dict(QUEUE_ARGUMENTS))
        for _ in range(slots):
            tag = await queue.consume(delivered, timeout=CALL_S_MAX)
            consumers.append((queue, tag))

    async def leave(self, topic: str) -> None:
        """Have no more tasks delivered."""
        for queue, tag in self._consumers.pop(topic, []):
            await queue.cancel(tag, timeout=CALL_S_MAX)

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def report(self, body: bytes) -> None:
        """Returns when RabbitMQ has it for good."""
        message = aio_pika.Message(body, content_type=CONTENT_TYPE, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._reports.default_exchange.publish(message, REPORTS, timeout=CALL_S_MAX)

    async def ask(self, body: bytes, number: str, valid_s: float) -> None:
        """A report that wants an answer, and is of no use when it is older than that."""
        message = aio_pika.Message(
            body,
            content_type=CONTENT_TYPE,
            correlation_id=number,
            reply_to=_ANSWERS,
            expiration=valid_s,
        )
        await self._reports.default_exchange.publish(message, REPORTS, timeout=CALL_S_MAX)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._connection.close(), CALL_S_MAX)
        except LOST:
            return  # it was closed already, by the other side
