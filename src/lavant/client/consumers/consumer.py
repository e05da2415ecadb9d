"""A consumer of a plain queue: iterate over its messages, or handle them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeAlias

from lavant.broker.protocol import queues as protocol
from lavant.client.bodies import json_of, text_of
from lavant.client.connection.loop_thread import LoopThread
from lavant.client.consumers.asynchronous import AsyncReceiving
from lavant.client.consumers.base import ConsumerBase, ConsumerParts, HandlerT
from lavant.client.consumers.item import ReceivedItem, Settle
from lavant.client.consumers.prefetcher import HeldMessage
from lavant.client.consumers.threaded import ThreadedReceiving
from lavant.client.operations import Asynchronous, Blocking, listing
from lavant.client.values.mirror import from_protocol
from lavant.client.values.queues import Delivery
from lavant.core.publications.trace_context import of_message


class QueueMessage(ReceivedItem):
    """A message of a queue, as its consumer receives it."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: protocol.Delivery, settle: Settle) -> None:
        super().__init__(delivery.receive_count, settle, of_message(delivery.attributes))
        self._delivery = delivery

    @property
    def delivery(self) -> Delivery:
        """All that the server said about it."""
        return from_protocol(Delivery, self._delivery)

    @property
    def number(self) -> int:
        """Identifies the message: no other message of the server ever has this number."""
        return self._delivery.receipt.number

    @property
    def body(self) -> bytes:
        return self._delivery.body

    @property
    def group(self) -> str:
        """The message group, in an in-order queue."""
        return self._delivery.group

    def text(self) -> str:
        """The body as text."""
        return text_of(self.body)

    def json(self, type: Any = Any) -> Any:
        """The body decoded from JSON, as a value of `type`: a class of msgspec or a dataclass, say."""
        return json_of(self.body, type)

    def __repr__(self) -> str:
        return f"QueueMessage({self.number}, {self.body[:60]!r})"


MessageHandler: TypeAlias = Callable[[QueueMessage], Any]
AsyncMessageHandler: TypeAlias = Callable[[QueueMessage], Awaitable[Any]]


class QueueConsumerBase(ConsumerBase[QueueMessage, HandlerT], Generic[HandlerT]):
    """The operations of a consumer for both clients."""

    @listing
    def messages(self, *, count: int | None = None, timeout_s: float | None = None) -> AsyncIterator[QueueMessage]:
        """Yields messages as they come: at most `count`, for at most `timeout_s`."""
        return self._items(count, timeout_s)

    def _decoded(self, held: HeldMessage, settle: Settle) -> QueueMessage:
        return QueueMessage(held.delivery, settle)


class Consumer(QueueConsumerBase[MessageHandler], ThreadedReceiving[QueueMessage], Blocking):
    """A consumer of a queue. A message is acknowledged when you ask for the next one, or when its handler has
    returned. Iterate in one thread only; `run` has several."""

    def __init__(self, parts: ConsumerParts, background: Callable[[], LoopThread]) -> None:
        super().__init__(parts)
        self._use(background)

    def __iter__(self) -> Iterator[QueueMessage]:
        return self.messages()


class AsyncConsumer(QueueConsumerBase[AsyncMessageHandler], AsyncReceiving[QueueMessage], Asynchronous):
    """A consumer of a queue, for the tasks of one event loop."""

    def __init__(self, parts: ConsumerParts) -> None:
        super().__init__(parts)
        self._use()

    def __aiter__(self) -> AsyncIterator[QueueMessage]:
        return self.messages()
