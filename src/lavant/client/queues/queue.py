"""A queue on a server, for callers that wait."""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Delivery, Described, MoveState, PeekedMessage, SendEntry
from lavant.client.connection.connection import Connection
from lavant.client.queues import calls
from lavant.client.queues.calls import Leased


class Queue:
    """A queue on a server."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._run = connection.run
        self.name = name

    def send(
        self,
        body: bytes,
        *,
        attributes: bytes = b"",
        delay_ms: int | None = None,
        group: str = "",
        deduplication: str = "",
    ) -> int:
        """Send a message and return its number; it is on the server's disk then."""
        return self._run(calls.send(self.name, SendEntry(body, attributes, delay_ms, group, deduplication)))

    def send_many(self, messages: Iterable[bytes | SendEntry]) -> list[int]:
        """Send messages and return their numbers. `PartlyRefused` says which were not accepted, if any."""
        return self._run(calls.send_many(self.name, messages))

    def receive(
        self, count: int = 1, *, visibility_ms: int | None = None, wait_ms: int | None = None
    ) -> list[Delivery]:
        """Up to `count` messages, hidden from others for `visibility_ms`; none if none came within `wait_ms`."""
        return self._run(calls.receive(self.name, count, visibility_ms, wait_ms))

    def acknowledge(self, *messages: Leased) -> None:
        """Their work is done: they are gone for good."""
        self._run(calls.acknowledge(self.name, messages))

    def change_visibility(self, *messages: Leased, visibility_ms: int) -> None:
        """Hide messages for so long from now on; 0 gives them back."""
        self._run(calls.change_visibility(self.name, messages, visibility_ms))

    def peek(self, count: int = 10, *, after: int = 0) -> list[PeekedMessage]:
        """Look at messages with numbers above `after`, whatever their state, and leave them as they are."""
        return self._run(calls.peek(self.name, count, after))

    def describe(self) -> Described:
        """Its settings, tags and figures."""
        return self._run(calls.describe(self.name))

    def configure(self, config: QueueConfig) -> None:
        self._run(calls.configure(self.name, config))

    def tag(self, tags: dict[str, str]) -> None:
        """Give it these tags, and no others."""
        self._run(calls.tag(self.name, tags))

    def purge(self) -> None:
        """Remove all messages, also those that somebody is working on."""
        self._run(calls.purge(self.name))

    def delete(self) -> None:
        self._run(calls.delete(self.name))

    def sources(self) -> list[str]:
        """The queues whose dead letters come here."""
        return self._run(calls.list_sources(self.name))

    def redrive(self, destination: str | None = None, *, rate_per_s: int | None = None) -> int:
        """Begin to move all messages to where they came from, or to `destination`; returns the move's number."""
        return self._run(calls.redrive(self.name, destination, rate_per_s))

    def moves(self) -> list[MoveState]:
        """Moves out of this queue, and how far they are."""
        return self._run(calls.list_moves(self.name))
