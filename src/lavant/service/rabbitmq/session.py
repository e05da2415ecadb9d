"""The server's connection to RabbitMQ: publishes tasks, consumes reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from lavant.amqp import Wire, call, declare, explained, publish
from lavant.broker.protocol.amqp_messages import REPORTS, Relayed, Report, decode_relayed, decode_report, task_queue
from lavant.core.errors import ConnectionLost, InvalidValue
from lavant.service.rabbitmq.ledger import LedgerEntry

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

REPORTS_AHEAD = 200
PEEKED_MAX = 1000
AGAIN_S = 1.0
"""Delay before a report that the server could not take is redelivered."""

_logger = logging.getLogger(__name__)


class QueueDepth(NamedTuple):
    """The state of a topic's queue."""

    ready: int
    """Messages not delivered to a worker."""
    consumers: int
    """Worker slots."""


class RabbitMQSession:
    """All calls raise `ConnectionLost` when the connection is over."""

    def __init__(self, wire: Wire, tasks: AbstractChannel, reports: AbstractChannel) -> None:
        self._wire = wire
        self._tasks = tasks
        self._reports = reports
        self._queues: dict[str, AbstractQueue] = {}

    @classmethod
    async def open(cls, url: str) -> RabbitMQSession:
        """Raises `MissingComponent` or `AccessDenied`."""
        wire = await Wire.open(url, "lavant server")
        try:
            tasks, reports = await wire.channel(), await wire.channel(confirms=False)
            await call(reports.set_qos(prefetch_count=REPORTS_AHEAD))
        except BaseException as error:
            await wire.close()
            raise explained(error, url) from None
        return cls(wire, tasks, reports)

    async def close(self) -> None:
        await self._wire.close()

    async def pause(self, seconds: float) -> None:
        """Sleeps, but raises at once when the session is over: no other call would notice a closed report channel."""
        try:
            async with asyncio.timeout(seconds):
                await self._wire.lost.wait()
        except TimeoutError:
            return
        raise ConnectionLost("RabbitMQ has closed a channel")

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def declare(self, topic: str) -> None:
        self._queues[topic] = await declare(self._tasks, task_queue(topic))

    async def poll(self, topic: str) -> QueueDepth:
        queue = await call(self._tasks.declare_queue(task_queue(topic), passive=True))
        counts = queue.declaration_result
        return QueueDepth(counts.message_count or 0, counts.consumer_count or 0)

    async def peek(self, topic: str) -> list[Relayed]:
        """Waiting tasks, which are requeued at once."""
        messages: list[AbstractIncomingMessage] = []
        while len(messages) < PEEKED_MAX:
            message = await call(self._queues[topic].get(fail=False))
            if message is None:
                break
            messages.append(message)
        found = []
        for message in messages:
            try:
                found.append(decode_relayed(message.body))
            except InvalidValue as error:
                _logger.warning("%s: %s", task_queue(topic), error)
            await call(message.nack(requeue=True))
        return found

    async def publish(self, entry: LedgerEntry) -> None:
        """Returns when RabbitMQ has confirmed the message."""
        key = entry.key
        message_id = f"{key.job}/{key.task}/{key.attempt}"
        await publish(self._tasks, task_queue(entry.topic), entry.body, message_id=message_id)

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def consume_reports(self, settle: Callable[[Report], Awaitable[bytes | None]]) -> None:
        """Settle each report, which returns an answer, or None if the server cannot take it now."""

        async def on_message(message: AbstractIncomingMessage) -> None:
            try:
                await self._settle(message, settle)
            except ConnectionLost as error:  # RabbitMQ delivers it again
                _logger.debug("a report was not acknowledged: %s", error)

        queue = await declare(self._reports, REPORTS)
        await call(queue.consume(on_message))

    async def _settle(
        self, message: AbstractIncomingMessage, settle: Callable[[Report], Awaitable[bytes | None]]
    ) -> None:
        try:
            report = decode_report(message.body)
        except InvalidValue as error:
            _logger.warning("%s: %s; it is discarded", REPORTS, error)
            await call(message.reject())
            return
        answer = await settle(report)
        if answer is None:
            await asyncio.sleep(AGAIN_S)
            await call(message.nack(requeue=True))
            return
        if message.reply_to:
            await publish(self._reports, message.reply_to, answer, correlation_id=message.correlation_id)
        await call(message.ack())
