"""A queue on a server, as a blocking or an asynchronous client uses it."""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Delivery, Described, MoveState, PeekedMessage, SendEntry
from lavant.client.operations import Asynchronous, Blocking, Caller, operation
from lavant.client.queues import calls
from lavant.client.queues.calls import Leased


class QueueOperations:
    """The operations on a queue."""

    def __init__(self, connection: Caller, name: str) -> None:
        self._answer = connection._answer
        self.name = name

    @operation
    async def send(
        self,
        body: bytes,
        *,
        attributes: bytes = b"",
        delay_ms: int | None = None,
        group: str = "",
        deduplication: str = "",
    ) -> int:
        """Sends a message and returns its number; the message is on the server's disk then."""
        return await self._answer(calls.send(self.name, SendEntry(body, attributes, delay_ms, group, deduplication)))

    @operation
    async def send_many(self, messages: Iterable[bytes | SendEntry]) -> list[int]:
        """Sends messages and returns their numbers. `PartlyRefused` says which were not accepted, if any."""
        return await self._answer(calls.send_many(self.name, messages))

    @operation
    async def receive(
        self, count: int = 1, *, visibility_ms: int | None = None, wait_ms: int | None = None
    ) -> list[Delivery]:
        """Leases up to `count` messages for `visibility_ms`; none if none came within `wait_ms`."""
        return await self._answer(calls.receive(self.name, count, visibility_ms, wait_ms))

    @operation
    async def acknowledge(self, *messages: Leased) -> None:
        """Deletes messages whose work is done."""
        await self._answer(calls.acknowledge(self.name, messages))

    @operation
    async def change_visibility(self, *messages: Leased, visibility_ms: int) -> None:
        """Extends the leases of messages to `visibility_ms` from now; 0 releases them."""
        await self._answer(calls.change_visibility(self.name, messages, visibility_ms))

    @operation
    async def peek(self, count: int = 10, *, after: int = 0) -> list[PeekedMessage]:
        """Reads messages with numbers above `after`, in any state, and leaves them as they are."""
        return await self._answer(calls.peek(self.name, count, after))

    @operation
    async def describe(self) -> Described:
        """Returns the queue's settings, tags and figures."""
        return await self._answer(calls.describe(self.name))

    @operation
    async def configure(self, config: QueueConfig) -> None:
        """Replaces the queue's settings."""
        await self._answer(calls.configure(self.name, config))

    @operation
    async def tag(self, tags: dict[str, str]) -> None:
        """Replaces the queue's tags."""
        await self._answer(calls.tag(self.name, tags))

    @operation
    async def purge(self) -> None:
        """Deletes all messages, also those in flight."""
        await self._answer(calls.purge(self.name))

    @operation
    async def delete(self) -> None:
        """Deletes the queue and its messages."""
        await self._answer(calls.delete(self.name))

    @operation
    async def sources(self) -> list[str]:
        """Returns the queues whose dead letters come here."""
        return await self._answer(calls.list_sources(self.name))

    @operation
    async def redrive(self, destination: str | None = None, *, rate_per_s: int | None = None) -> int:
        """Starts to move all messages to where they came from, or to `destination`, and returns the move's number."""
        return await self._answer(calls.redrive(self.name, destination, rate_per_s))

    @operation
    async def moves(self) -> list[MoveState]:
        """Returns the moves out of this queue, and their progress."""
        return await self._answer(calls.list_moves(self.name))


class Queue(QueueOperations, Blocking):
    """A queue of a `Client`."""


class AsyncQueue(QueueOperations, Asynchronous):
    """A queue of an `AsyncClient`."""
