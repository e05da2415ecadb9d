"""A worker's side of a connection to RabbitMQ: tasks are delivered, reports go out, answers come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lavant.amqp import Wire, call, declare, explained, publish
from lavant.broker.protocol.amqp_messages import REPORTS, task_queue

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

_ANSWERS = "amq.rabbitmq.reply-to"
"""RabbitMQ's own way back to who asked; it needs no queue."""


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
            line = cls(wire, await wire.channel(), await wire.channel(), on_task)
            await line._prepare(on_answer)
        except BaseException as error:
            await wire.close()
            raise explained(error, url) from None
        return line

    async def _prepare(self, on_answer: Callable[[str, bytes], None]) -> None:
        async def answered(message: AbstractIncomingMessage) -> None:
            on_answer(message.correlation_id or "", message.body)

        await call(self._tasks.set_qos(prefetch_count=1))  # of each consumer, and each is a slot
        await declare(self._reports, REPORTS)
        answers = await self._reports.get_queue(_ANSWERS, ensure=False)
        await call(answers.consume(answered, no_ack=True))

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def consume(self, topic: str, slots: int) -> None:
        """Have tasks delivered, one for each slot; the next when the one before is acknowledged."""
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
        """Have no more tasks delivered."""
        for queue, tag in self._consumers.pop(topic, []):
            await call(queue.cancel(tag))

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def report(self, body: bytes) -> None:
        """Returns when RabbitMQ has it for good."""
        await publish(self._reports, REPORTS, body)

    async def ask(self, body: bytes, number: str, valid_s: float) -> None:
        """A report that wants an answer, and is of no use when it is older than that."""
        await publish(self._reports, REPORTS, body, correlation_id=number, reply_to=_ANSWERS, valid_s=valid_s)

    async def close(self) -> None:
        await self._wire.close()
