"""A queue on a server, as a blocking or an asynchronous client uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from lavant import tracing
from lavant.broker.protocol import queues as protocol
from lavant.broker.protocol.queue_config import DELAY_MS_MAX
from lavant.client import queue_calls as calls
from lavant.client.arguments import milliseconds, seconds
from lavant.client.bodies import Body, body_bytes
from lavant.client.connection.calls import Call
from lavant.client.consumers.base import check_receiving
from lavant.client.consumers.consumer import AsyncConsumer, AsyncMessageHandler, Consumer, MessageHandler
from lavant.client.consumers.prefetcher import PREFETCH
from lavant.client.operations import Asynchronous, Blocking, Caller, sending_call, single_call
from lavant.client.queue_calls import Leased
from lavant.client.values.queues import Delivery, Described, MoveState, PeekedMessage, QueueConfig, SendEntry
from lavant.core.errors import InvalidValue
from lavant.core.publications.trace_context import as_attributes

ConsumerT = TypeVar("ConsumerT", Consumer, AsyncConsumer)
HandlerT = TypeVar("HandlerT")


class QueueOperations(Generic[ConsumerT, HandlerT]):
    """The operations on a queue."""

    def __init__(
        self, connection: Caller, name: str, new_consumer: Callable[[str, int, float | None], ConsumerT]
    ) -> None:
        self._connection = connection
        self._new_consumer: Callable[[str, int, float | None], ConsumerT] = new_consumer
        self.name = name

    def consume(
        self,
        handler: HandlerT | None = None,
        *,
        workers: int = 1,
        prefetch: int = PREFETCH,
        visibility_s: float | None = None,
    ) -> ConsumerT:
        """Returns a consumer: iterate over it, or call its `run` with a handler. With a `handler`, messages are handled
        in the background, by so many `workers`, until you close the consumer.

        `prefetch` messages are leased ahead, for `visibility_s` at a time; leases are extended while you work.
        """
        check_receiving(prefetch, visibility_s, handler, workers)
        consumer: Any = self._new_consumer(self.name, prefetch, visibility_s)
        if handler is not None:
            consumer.start(handler, workers=workers)
        return consumer  # type: ignore[no-any-return]

    @sending_call
    def send(
        self,
        body: Body,
        *,
        attributes: bytes = b"",
        delay_s: float | None = None,
        group: str = "",
        deduplication: str = "",
        delay_ms: int | None = None,
    ) -> Call[int]:
        """Sends a message and returns its number; the message is on the server's disk then. Text is sent as UTF-8,
        dicts and lists as JSON. It is visible after `delay_s`; that of the queue by default."""
        delay = milliseconds("delay_s", seconds("delay", delay_s, delay_ms), DELAY_MS_MAX)
        kept = as_attributes(tracing.current()) if attributes == b"" else attributes
        return calls.send_stored(self.name, protocol.SendEntry(body_bytes(body), kept, delay, group, deduplication))

    @sending_call
    def send_many(self, messages: Iterable[Body | SendEntry]) -> Call[list[int]]:
        """Sends messages and returns their numbers. `PartlyRefused` says which were not accepted, if any."""
        return calls.send_many(self.name, messages, as_attributes(tracing.current()))

    @single_call
    def receive(
        self,
        count: int = 1,
        *,
        visibility_s: float | None = None,
        wait_s: float | None = None,
        visibility_ms: int | None = None,
        wait_ms: int | None = None,
    ) -> Call[list[Delivery]]:
        """Leases up to `count` messages for `visibility_s`; none if none came within `wait_s`. `consume` is simpler."""
        hidden_s, waits_s = seconds("visibility", visibility_s, visibility_ms), seconds("wait", wait_s, wait_ms)
        return calls.receive(self.name, count, visibility_s=hidden_s, wait_s=waits_s)

    @single_call
    def acknowledge(self, *messages: Leased) -> Call[None]:
        """Deletes messages whose work is done."""
        return calls.acknowledge(self.name, messages)

    @single_call
    def change_visibility(
        self, *messages: Leased, visibility_s: float | None = None, reason: str = "", visibility_ms: int | None = None
    ) -> Call[None]:
        """Extends the leases of messages to `visibility_s` from now; 0 releases them. The server keeps the `reason` of
        a failure, for people who look at dead letters."""
        hidden_s = seconds("visibility", visibility_s, visibility_ms)
        if hidden_s is None:
            raise InvalidValue("change_visibility needs visibility_s, the length of the lease from now")
        return calls.change_visibility(self.name, messages, visibility_s=hidden_s, reason=reason)

    @single_call
    def peek(self, count: int = 10, *, after: int = 0) -> Call[list[PeekedMessage]]:
        """Reads messages with numbers above `after`, in any state, and leaves them as they are."""
        return calls.peek(self.name, count, after)

    @single_call
    def describe(self) -> Call[Described]:
        """Returns the queue's settings, tags and figures."""
        return calls.describe(self.name)

    @single_call
    def configure(self, config: QueueConfig) -> Call[None]:
        """Replaces the queue's settings."""
        return calls.configure(self.name, config)

    @single_call
    def tag(self, tags: dict[str, str]) -> Call[None]:
        """Replaces the queue's tags."""
        return calls.tag(self.name, tags)

    @single_call
    def purge(self) -> Call[None]:
        """Deletes all messages, also those in flight."""
        return calls.purge(self.name)

    @single_call
    def delete(self) -> Call[None]:
        """Deletes the queue and its messages."""
        return calls.delete(self.name)

    @single_call
    def sources(self) -> Call[list[str]]:
        """Returns the queues whose dead letters come here."""
        return calls.list_sources(self.name)

    @single_call
    def redrive(self, destination: str | None = None, *, rate_per_s: int | None = None) -> Call[int]:
        """Starts to move all messages to where they came from, or to `destination`, and returns the move's number."""
        return calls.redrive(self.name, destination, rate_per_s)

    @single_call
    def moves(self) -> Call[list[MoveState]]:
        """Returns the moves out of this queue, and their progress."""
        return calls.list_moves(self.name)


class Queue(QueueOperations[Consumer, MessageHandler], Blocking):
    """A queue of a `Client`."""


class AsyncQueue(QueueOperations[AsyncConsumer, AsyncMessageHandler], Asynchronous):
    """A queue of an `AsyncClient`."""
