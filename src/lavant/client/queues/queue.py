"""A queue on a server, as a blocking or an asynchronous client uses it."""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Delivery, Described, MoveState, PeekedMessage, SendEntry
from lavant.client.connection.calls import Call
from lavant.client.operations import Asynchronous, Blocking, Caller, single_call
from lavant.client.queues import calls
from lavant.client.queues.calls import Leased


class QueueOperations:
    """The operations on a queue."""

    def __init__(self, connection: Caller, name: str) -> None:
        self._connection = connection
        self.name = name

    @single_call
    def send(
        self,
        body: bytes,
        *,
        attributes: bytes = b"",
        delay_ms: int | None = None,
        group: str = "",
        deduplication: str = "",
    ) -> Call[int]:
        """Sends a message and returns its number; the message is on the server's disk then."""
        return calls.send(self.name, SendEntry(body, attributes, delay_ms, group, deduplication))

    @single_call
    def send_many(self, messages: Iterable[bytes | SendEntry]) -> Call[list[int]]:
        """Sends messages and returns their numbers. `PartlyRefused` says which were not accepted, if any."""
        return calls.send_many(self.name, messages)

    @single_call
    def receive(
        self, count: int = 1, *, visibility_ms: int | None = None, wait_ms: int | None = None
    ) -> Call[list[Delivery]]:
        """Leases up to `count` messages for `visibility_ms`; none if none came within `wait_ms`."""
        return calls.receive(self.name, count, visibility_ms, wait_ms)

    @single_call
    def acknowledge(self, *messages: Leased) -> Call[None]:
        """Deletes messages whose work is done."""
        return calls.acknowledge(self.name, messages)

    @single_call
    def change_visibility(self, *messages: Leased, visibility_ms: int) -> Call[None]:
        """Extends the leases of messages to `visibility_ms` from now; 0 releases them."""
        return calls.change_visibility(self.name, messages, visibility_ms)

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


class Queue(QueueOperations, Blocking):
    """A queue of a `Client`."""


class AsyncQueue(QueueOperations, Asynchronous):
    """A queue of an `AsyncClient`."""
