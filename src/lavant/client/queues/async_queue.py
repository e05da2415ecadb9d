"""A queue on a server, for tasks of an event loop."""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Delivery, Described, MoveState, PeekedMessage, SendEntry
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.queues import calls
from lavant.client.queues.calls import Leased


class AsyncQueue:
    """A queue on a server."""

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        self._run = connection.run
        self.name = name

    async def send(
        self,
        body: bytes,
        *,
        attributes: bytes = b"",
        delay_ms: int | None = None,
        group: str = "",
        deduplication: str = "",
    ) -> int:
        """Send a message and return its number; it is on the server's disk then."""
        return await self._run(calls.send(self.name, SendEntry(body, attributes, delay_ms, group, deduplication)))

    async def send_many(self, messages: Iterable[bytes | SendEntry]) -> list[int]:
        """Send messages and return their numbers. `PartlyRefused` says which were not accepted, if any."""
        return await self._run(calls.send_many(self.name, messages))

    async def receive(
        self, count: int = 1, *, visibility_ms: int | None = None, wait_ms: int | None = None
    ) -> list[Delivery]:
        """Up to `count` messages, hidden from others for `visibility_ms`; none if none came within `wait_ms`."""
        return await self._run(calls.receive(self.name, count, visibility_ms, wait_ms))

    async def acknowledge(self, *messages: Leased) -> None:
        """Their work is done: they are gone for good."""
        await self._run(calls.acknowledge(self.name, messages))

    async def change_visibility(self, *messages: Leased, visibility_ms: int) -> None:
        """Hide messages for so long from now on; 0 gives them back."""
        await self._run(calls.change_visibility(self.name, messages, visibility_ms))

    async def peek(self, count: int = 10, *, after: int = 0) -> list[PeekedMessage]:
        """Look at messages with numbers above `after`, whatever their state, and leave them as they are."""
        return await self._run(calls.peek(self.name, count, after))

    async def describe(self) -> Described:
        """Its settings, tags and figures."""
        return await self._run(calls.describe(self.name))

    async def configure(self, config: QueueConfig) -> None:
        await self._run(calls.configure(self.name, config))

    async def tag(self, tags: dict[str, str]) -> None:
        """Give it these tags, and no others."""
        await self._run(calls.tag(self.name, tags))

    async def purge(self) -> None:
        """Remove all messages, also those that somebody is working on."""
        await self._run(calls.purge(self.name))

    async def delete(self) -> None:
        await self._run(calls.delete(self.name))

    async def sources(self) -> list[str]:
        """The queues whose dead letters come here."""
        return await self._run(calls.list_sources(self.name))

    async def redrive(self, destination: str | None = None, *, rate_per_s: int | None = None) -> int:
        """Begin to move all messages to where they came from, or to `destination`; returns the move's number."""
        return await self._run(calls.redrive(self.name, destination, rate_per_s))

    async def moves(self) -> list[MoveState]:
        """Moves out of this queue, and how far they are."""
        return await self._run(calls.list_moves(self.name))
