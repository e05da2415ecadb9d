"""The asynchronous client: concurrent calls share one connection, and what is asked together leaves together.

>>> from lavant.client.queues import AsyncQueueClient
>>> async def work() -> None:
...     async with await AsyncQueueClient.connect("lavant://127.0.0.1:7324") as client:
...         orders = await client.create("orders")
...         await asyncio.gather(*(orders.send(b"box %d" % i) for i in range(100)))
...         for message in await orders.receive(count=10, wait_ms=20_000):
...             await orders.acknowledge(message)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from lavant.broker.queues.commands import Delivery, Described, Entry, MoveState, PeekedMessage, Refused
from lavant.broker.queues.config import QueueConfig
from lavant.broker.serving.commands import Answer
from lavant.client.queues import calls
from lavant.client.queues.address import Address
from lavant.client.queues.calls import NEW_QUEUE, Call, Leased
from lavant.client.queues.link import Link
from lavant.client.queues.refusals import error_of
from lavant.client.queues.retrying import RETRIES, TIMEOUT_S, Retries, check_timeout
from lavant.core.errors import ConnectionLost, MissingComponent
from lavant.core.ports import QUEUES_URL

T = TypeVar("T")

LISTED_AT_ONCE = 1000


class AsyncQueueClient:
    """A connection to a server of queues, for the tasks of one event loop."""

    def __init__(self, address: Address, *, token: bytes, timeout_s: float, retries: Retries) -> None:
        check_timeout(timeout_s)
        self._address = address
        self._token = token
        self._timeout_s = timeout_s
        self._retries = retries
        self._link: Link | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    @classmethod
    async def connect(
        cls, url: str = QUEUES_URL, *, token: bytes = b"", timeout_s: float = TIMEOUT_S, retries: Retries = RETRIES
    ) -> Self:
        client = cls(Address.parse(url), token=token, timeout_s=timeout_s, retries=retries)
        await client._connected()
        return client

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name; whether it is there shows when it is used."""
        return AsyncQueue(self, name)

    async def create(
        self, name: str, config: QueueConfig = NEW_QUEUE, *, tags: dict[str, str] | None = None
    ) -> AsyncQueue:
        """A queue that is there from now on; it may be there already, with the same settings."""
        await self.run(calls.create(name, config, {} if tags is None else tags))
        return AsyncQueue(self, name)

    async def queues(self, prefix: str = "") -> AsyncIterator[str]:
        """The names of all queues, sorted."""
        after = ""
        while names := await self.run(calls.list_queues(prefix, after, LISTED_AT_ONCE)):
            for name in names:
                yield name
            after = names[-1]

    async def cancel_move(self, task: int) -> MoveState:
        return await self.run(calls.cancel_move(task))

    async def run(self, call: Call[T]) -> T:
        """Carry out a call. If the connection breaks, it is tried again where that can do no harm."""
        link = self._link
        if link is not None and link.is_writable and link.fault is None:  # nearly always
            try:
                answer = await link.ask(call.request, call.wait_ms)
            except ConnectionLost:
                if self._is_closed or not call.is_repeatable:
                    raise
                answer = await self._ask_until_answered(call)
        else:
            answer = await self._ask_until_answered(call)
        return call.read(answer)

    async def close(self) -> None:
        """For good: what is under way fails."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()
            await self._link.closed.wait()
            self._link = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask_until_answered(self, call: Call[Any]) -> Answer:
        pauses_s = self._retries.pauses_s()
        while True:
            try:
                link = await self._connected()
                await link.writable()
                return await link.ask(call.request, call.wait_ms)
            except (ConnectionLost, MissingComponent) as error:
                may_repeat = call.is_repeatable or isinstance(error, MissingComponent)
                pause_s = next(pauses_s, None) if may_repeat and not self._is_closed else None
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._is_closed:
                raise ConnectionLost(f"this client of {self._address} was closed; connect anew")
            if self._link is None or self._link.fault is not None:
                self._link = await self._new_link()
            return self._link

    async def _new_link(self) -> Link:
        loop = asyncio.get_running_loop()
        link = Link(self._address, self._token, self._timeout_s)
        try:
            async with asyncio.timeout(self._timeout_s):
                await loop.create_connection(lambda: link, *self._address)
        except OSError as error:
            link.greeting.cancel()
            raise MissingComponent(
                f"no server answers at {self._address}: {error}; "
                f"start one with `lavant serve --port {self._address.port}`"
            ) from None
        try:
            answer = await link.greeting
            if isinstance(answer, Refused):
                raise error_of(answer)
        except BaseException:
            link.close()
            await link.closed.wait()
            raise
        return link


class AsyncQueue:
    """A queue on a server."""

    def __init__(self, client: AsyncQueueClient, name: str) -> None:
        self._run = client.run
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
        return await self._run(calls.send(self.name, Entry(body, attributes, delay_ms, group, deduplication)))

    async def send_many(self, messages: Iterable[bytes | Entry]) -> list[int]:
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
