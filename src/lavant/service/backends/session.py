"""One connection to RabbitMQ, from when it is made to when it is lost: the only file of the server that knows AMQP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from lavant.broker.workflows.relay import (
    CONTENT_TYPE,
    QUEUE_ARGUMENTS,
    REPORTS,
    Relayed,
    Report,
    decode_relayed,
    decode_report,
    locked_out,
    task_queue,
    unreachable,
    without_library,
)
from lavant.core.errors import InvalidValue
from lavant.service.backends.ledger import Entry

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

CONNECT_S_MAX = 10.0
HEARTBEAT_S = 10
PUBLISH_S_MAX = 10.0
"""For RabbitMQ to confirm: it may be short of memory or disk, and hold publishers up."""
REPORTS_AHEAD = 200
PEEKED_MAX = 1000
AGAIN_S = 1.0
"""Before a report is taken up again that the server has no room for."""

LOST = (*CONNECTION_EXCEPTIONS, TimeoutError)
"""What a call raises when the connection is gone, or RabbitMQ has closed it: the session is over."""

_logger = logging.getLogger(__name__)
for _name in ("aiormq", "aio_pika"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they raise is told once, with what to do about it


class Seen(NamedTuple):
    """A look at the queue of a topic."""

    ready: int
    """Messages that no worker has."""
    consumers: int
    """Workers' slots."""


class Session:
    def __init__(self, connection: AbstractConnection, tasks: AbstractChannel, reports: AbstractChannel) -> None:
        self._connection = connection
        self._tasks = tasks
        self._reports = reports
        self._queues: dict[str, AbstractQueue] = {}

    @classmethod
    async def open(cls, url: str) -> Session:
        """Raises `MissingComponent` or `AccessDenied`."""
        try:
            connection = await aio_pika.connect(
                url,
                timeout=CONNECT_S_MAX,
                heartbeat=HEARTBEAT_S,
                client_properties={"connection_name": "lavant server"},
            )
        except (AuthenticationError, ProbableAuthenticationError) as error:
            raise locked_out(url, str(error)) from None
        except InvalidFrameError:  # it hangs up instead of opening the virtual host
            raise locked_out(url, "the virtual host is not there, or not for this user") from None
        except LOST as error:
            raise unreachable(url, error) from None
        try:
            tasks = await connection.channel(publisher_confirms=True, on_return_raises=True)
            reports = await connection.channel(publisher_confirms=False)
            await reports.set_qos(prefetch_count=REPORTS_AHEAD)
        except LOST as error:
            await connection.close()
            raise locked_out(url, str(error)) from None
        return cls(connection, tasks, reports)

    async def close(self) -> None:
        await self._connection.close()

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def declare(self, topic: str) -> None:
        self._queues[topic] = await self._tasks.declare_queue(
            task_queue(topic), durable=True, arguments=dict(QUEUE_ARGUMENTS)
        )

    async def look(self, topic: str) -> Seen:
        name = task_queue(topic)
        queue = await self._tasks.declare_queue(name, passive=True, timeout=CONNECT_S_MAX)
        counts = queue.declaration_result
        return Seen(counts.message_count or 0, counts.consumer_count or 0)

    async def peek(self, topic: str) -> list[Relayed]:
        """What waits there. All of it goes back at once."""
        messages: list[AbstractIncomingMessage] = []
        while len(messages) < PEEKED_MAX:
            message = await self._queues[topic].get(fail=False)
            if message is None:
                break
            messages.append(message)
        found = []
        for message in messages:
            try:
                found.append(decode_relayed(message.body))
            except InvalidValue as error:
                _logger.warning("%s: %s", task_queue(topic), error)
            await message.nack(requeue=True)
        return found

    async def publish(self, entry: Entry) -> None:
        """Returns when RabbitMQ has it for good."""
        message = aio_pika.Message(
            entry.body,
            content_type=CONTENT_TYPE,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=f"{entry.key.job}/{entry.key.task}/{entry.key.attempt}",
        )
        await self._tasks.default_exchange.publish(message, task_queue(entry.topic), timeout=PUBLISH_S_MAX)

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def consume_reports(self, settle: Callable[[Report], Awaitable[bytes | None]]) -> None:
        """Have each settled, which gives an answer, or None if the server has no room for it just now."""

        async def on_message(message: AbstractIncomingMessage) -> None:
            try:
                await self._settle(message, settle)
            except LOST as error:  # RabbitMQ delivers it again
                _logger.debug("a report was not acknowledged: %s", error)

        queue = await self._reports.declare_queue(REPORTS, durable=True, arguments=dict(QUEUE_ARGUMENTS))
        await queue.consume(on_message)

    async def _settle(
        self, message: AbstractIncomingMessage, settle: Callable[[Report], Awaitable[bytes | None]]
    ) -> None:
        try:
            report = decode_report(message.body)
        except InvalidValue as error:
            _logger.warning("%s: %s; it is thrown out", REPORTS, error)
            await message.reject()
            return
        answer = await settle(report)
        if answer is None:
            await asyncio.sleep(AGAIN_S)
            await message.nack(requeue=True)
            return
        if message.reply_to:
            reply = aio_pika.Message(answer, content_type=CONTENT_TYPE, correlation_id=message.correlation_id)
            await self._reports.default_exchange.publish(reply, message.reply_to, mandatory=False)
        await message.ack()
