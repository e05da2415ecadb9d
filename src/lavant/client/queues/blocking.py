"""The blocking client: one request at a time, or many in a pipeline, over a plain socket.

>>> from lavant.client.queues import QueueClient
>>> with QueueClient.connect("lavant://127.0.0.1:7324") as client:  # doctest: +SKIP
...     orders = client.create("orders")
...     orders.send(b"three boxes")
...     for message in orders.receive(count=10, wait_ms=20_000):
...         print(message.body)
...         orders.acknowledge(message)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from lavant.broker.queues.commands import (
    Delivery,
    Described,
    Entry,
    MoveState,
    PeekedMessage,
    Send,
)
from lavant.broker.queues.config import SECOND_MS, QueueConfig
from lavant.broker.serving.commands import Answer, Request
from lavant.broker.serving.wire import append_frame
from lavant.client.queues import calls
from lavant.client.queues.address import Address
from lavant.client.queues.calls import NEW_QUEUE, Call, Leased
from lavant.client.queues.channel import Channel
from lavant.client.queues.retrying import RETRIES, TIMEOUT_S, Retries, check_timeout
from lavant.core.errors import ConnectionLost, LavantError, MissingComponent
from lavant.core.ports import QUEUES_URL

T = TypeVar("T")

LISTED_AT_ONCE = 1000
PIPELINE_BYTES = 64 << 10


class QueueClient:
    """A connection to a server of queues. Threads may share one; each request then waits for the one before."""

    def __init__(self, address: Address, *, token: bytes, timeout_s: float, retries: Retries) -> None:
        check_timeout(timeout_s)
        self._address = address
        self._token = token
        self._timeout_s = timeout_s
        self._retries = retries
        self._channel: Channel | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @classmethod
    def connect(
        cls, url: str = QUEUES_URL, *, token: bytes = b"", timeout_s: float = TIMEOUT_S, retries: Retries = RETRIES
    ) -> Self:
        client = cls(Address.parse(url), token=token, timeout_s=timeout_s, retries=retries)
        client._connected()
        return client

    def queue(self, name: str) -> Queue:
        """A queue by its name; whether it is there shows when it is used."""
        return Queue(self, name)

    def create(self, name: str, config: QueueConfig = NEW_QUEUE, *, tags: dict[str, str] | None = None) -> Queue:
        """A queue that is there from now on; it may be there already, with the same settings."""
        self.run(calls.create(name, config, {} if tags is None else tags))
        return Queue(self, name)

    def queues(self, prefix: str = "") -> Iterator[str]:
        """The names of all queues, sorted."""
        after = ""
        while names := self.run(calls.list_queues(prefix, after, LISTED_AT_ONCE)):
            yield from names
            after = names[-1]

    def cancel_move(self, task: int) -> MoveState:
        return self.run(calls.cancel_move(task))

    def run(self, call: Call[T]) -> T:
        """Carry out a call. If the connection breaks, it is tried again where that can do no harm."""
        with self._lock:
            try:
                answer = self._ask(call)
            except (ConnectionLost, MissingComponent) as error:
                answer = self._ask_again(call, error)
        return call.read(answer)

    def pipeline(self, wanted: Sequence[Call[Any]]) -> list[Any]:
        """Carry out many calls without waiting in between; what they give, in their order, be it an error.

        Nothing is tried again: when the connection breaks, that is raised, and some may have been carried out.
        """
        with self._lock:
            answers = [answer for part in _parts(wanted) for answer in self._ask_many(part)]
        return [_result(call, answer) for call, answer in zip(wanted, answers, strict=True)]

    def close(self) -> None:
        """For good."""
        with self._lock:
            self._is_closed = True
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, call: Call[Any]) -> Answer:
        buffer = bytearray()
        append_frame(buffer, 1, call.request)
        try:
            channel = self._channel_for(call.wait_ms, is_repeatable=call.is_repeatable)
            channel.write(buffer)
            return channel.read()[1]
        except BaseException:  # half an answer may be under way: this connection is of no use any more
            self._drop()
            raise

    def _ask_again(self, call: Call[Any], error: ConnectionLost | MissingComponent) -> Answer:
        pauses_s = self._retries.pauses_s()
        while True:
            may_repeat = (call.is_repeatable or isinstance(error, MissingComponent)) and not self._is_closed
            pause_s = next(pauses_s, None) if may_repeat else None
            if pause_s is None:
                raise error
            time.sleep(pause_s)
            try:
                return self._ask(call)
            except (ConnectionLost, MissingComponent) as another:
                error = another

    def _ask_many(self, wanted: Sequence[Call[Any]]) -> list[Answer]:
        """The answers in the order of the calls, however the server orders them."""
        buffer = bytearray()
        for number, call in enumerate(wanted):
            append_frame(buffer, number, call.request)
        try:
            channel = self._channel_for(max(call.wait_ms for call in wanted), is_repeatable=False)
            channel.write(buffer)
            answers = dict(channel.read() for _ in wanted)
        except BaseException:
            self._drop()
            raise
        return [answers[number] for number in range(len(wanted))]

    def _channel_for(self, wait_ms: int, *, is_repeatable: bool) -> Channel:
        channel = self._channel
        if channel is None or not (is_repeatable or channel.is_quiet()):
            self._drop()  # the server was restarted, say: a new connection saves an error
            channel = self._connected()
        channel.wait_up_to(self._timeout_s + wait_ms / SECOND_MS)
        return channel

    def _connected(self) -> Channel:
        if self._is_closed:
            raise ConnectionLost(f"this client of {self._address} was closed; connect anew")
        if self._channel is None:
            self._channel = Channel(self._address, self._token, self._timeout_s)
        return self._channel

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class Queue:
    """A queue on a server."""

    def __init__(self, client: QueueClient, name: str) -> None:
        self._run = client.run
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
        return self._run(calls.send(self.name, Entry(body, attributes, delay_ms, group, deduplication)))

    def send_many(self, messages: Iterable[bytes | Entry]) -> list[int]:
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


def _parts(wanted: Sequence[Call[Any]]) -> Iterator[list[Call[Any]]]:
    """What may be under way together: so little that it fits into the sockets' buffers while nobody reads."""
    part: list[Call[Any]] = []
    size = 0
    for call in wanted:
        call_bytes = _size_bytes(call.request)
        if part and size + call_bytes > PIPELINE_BYTES:
            yield part
            part, size = [], 0
        part.append(call)
        size += call_bytes
    if part:
        yield part


def _size_bytes(request: Request) -> int:
    """About so many bytes on the wire."""
    if isinstance(request, Send):
        return 64 + sum(len(entry.body) + len(entry.attributes) + 64 for entry in request.entries)
    return 64


def _result(call: Call[Any], answer: Answer) -> Any:
    try:
        return call.read(answer)
    except LavantError as error:
        return error
