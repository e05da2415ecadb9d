"""A worker's channel to RabbitMQ: delivers tasks, publishes reports, and receives answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lavant.amqp import Wire, call, declare, explained, publish
from lavant.broker.protocol.amqp_messages import REPORTS, task_queue

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

_ANSWERS = "amq.rabbitmq.reply-to"
"""RabbitMQ's direct reply-to, which needs no queue."""


class RabbitMQChannel:
    """`on_task` gets what is delivered, `on_answer` gets (correlation id, body).

    Calls raise `ConnectionLost`; `lost` is set when they would.
    """

    def __init__(
        self,
        wire: Wire,
        tasks: AbstractChannel,
        reports: AbstractChannel,
        on_task: Callable[[str, AbstractIncomingMessage], None],
    ) -> None:
        self._wire = wire
        self._tasks = tasks
        self._reports = reports
        self._on_task = on_task
        self._consumers: dict[str, list[tuple[AbstractQueue, str]]] = {}
        self.lost = wire.lost

    @classmethod
    async def open(
        cls,
        url: str,
        worker: str,
        on_task: Callable[[str, AbstractIncomingMessage], None],
        on_answer: Callable[[str, bytes], None],
    ) -> RabbitMQChannel:
        """Raises `MissingComponent` or `AccessDenied`."""
        wire = await Wire.open(url, f"lavant worker {worker}")
        try:
            channel = cls(wire, await wire.channel(), await wire.channel(), on_task)
            await channel._prepare(on_answer)
        except BaseException as error:
            await wire.close()
            raise explained(error, url) from None
        return channel

    async def _prepare(self, on_answer: Callable[[str, bytes], None]) -> None:
        async def answered(message: AbstractIncomingMessage) -> None:
            on_answer(message.correlation_id or "", message.body)

        await call(self._tasks.set_qos(prefetch_count=1))  # for each consumer, which is a slot
        await declare(self._reports, REPORTS)
        answers = await self._reports.get_queue(_ANSWERS, ensure=False)
        await call(answers.consume(answered, no_ack=True))

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def consume(self, topic: str, slots: int) -> None:
        """Starts a consumer for each slot; each gets its next task when the last is acknowledged."""
        if topic in self._consumers:
            return
        consumers = self._consumers[topic] = []

        async def delivered(message: AbstractIncomingMessage) -> None:
            self._on_task(topic, message)

        queue = await declare(self._tasks, task_queue(topic))
        for _ in range(slots):
            tag = await call(queue.consume(delivered))
            consumers.append((queue, tag))

    async def leave(self, topic: str) -> None:
        """Cancels the consumers."""
        for queue, tag in self._consumers.pop(topic, []):
            await call(queue.cancel(tag))

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def report(self, body: bytes) -> None:
        """Publishes, and returns when RabbitMQ has confirmed it."""
        await publish(self._reports, REPORTS, body)

    async def ask(self, body: bytes, number: str, valid_s: float) -> None:
        """Publishes a report that wants an answer and expires after `valid_s`."""
        await publish(self._reports, REPORTS, body, correlation_id=number, reply_to=_ANSWERS, valid_s=valid_s)

    async def close(self) -> None:
        await self._wire.close()
