"""A blocking connection: one request at a time, or many in a pipeline, over a plain socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import Refused, Send
from lavant.broker.protocol.subscriptions import Publish
from lavant.client.connection.calls import Call
from lavant.client.connection.channel import Channel
from lavant.client.connection.errors import append_request
from lavant.client.connection.redirects import FOLLOWED_MAX, PAUSE_S, RequestPart, merged, settled
from lavant.client.connection.retries import NO_RETRIES, Pauses, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.operations import Blocking, Caller
from lavant.core.addresses import Address
from lavant.core.errors import AccessDenied, ConnectionLost, LavantError, MissingComponent, NotReady

T = TypeVar("T")

PIPELINE_BYTES = 64 << 10


class Connection(Caller, Blocking):
    """Threads may share one; each request then waits for the one before."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._channel: Channel | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._others: dict[Address, Connection] = {}
        """Connections to brokers to which subscriptions have moved."""
        self._others_lock = threading.Lock()

    def open(self) -> Self:
        """Connects now and waits for a server that is starting. Raises if none answers.

        Without it, the first request connects.
        """
        pauses = Pauses(self._settings.retries)
        with self._lock:
            while True:
                try:
                    self._connected()
                except NotReady as error:
                    pause_s = pauses.after_s(error)
                    if pause_s is None:
                        raise
                    time.sleep(pause_s)
                else:
                    return self

    def run(self, call: Call[T], *, retries: Retries | None = None) -> T:
        """Carries out a call. If the connection breaks, a repeatable call is retried.

        `retries` says how often, instead of the client's settings.
        """
        redirects = self._settings.redirects
        if redirects and redirects.knows(call.request):
            return self._follow(call, retries)
        answer = self._answer_to(call, retries)
        if type(answer) is Refused and answer.address:
            redirects.learn(call.request, answer)
            return self._follow(call, retries)
        return call.read(answer)

    def _follow(self, call: Call[T], retries: Retries | None) -> T:
        """Carries out a call at the brokers to which the redirects lead."""
        redirects = self._settings.redirects
        for _ in range(FOLLOWED_MAX):
            answers: list[tuple[RequestPart, Answer]] = []
            for part in redirects.parts(call.request):
                given = self._answer_elsewhere(call, part, retries)
                if given is None:
                    break
                redirects.answered(part, given)
                answers.append((part, settled(part, given)))
            else:
                answer = merged(answers)
                if type(answer) is not Refused or not redirects.goes_on(call.request, answers[-1][0], answer):
                    return call.read(answer)
            time.sleep(PAUSE_S)
        return call.read(answer)

    def _answer_elsewhere(self, call: Call[T], part: RequestPart, retries: Retries | None) -> Answer | None:
        """None if the first broker has to be asked, since nothing could be sent to the other one."""
        call = call.of(part.request)
        if part.address is None:
            return self._answer_to(call, retries)
        if not part.is_optional:
            return self._at(part.address)._answer_to(call, retries)
        try:
            return self._at(part.address)._answer_to(call.once(), NO_RETRIES)
        except (MissingComponent, AccessDenied):
            self._settings.redirects.forget(part.request)
            return None
        except ConnectionLost:
            self._settings.redirects.unanswered(part)
            if not call.is_repeatable:
                raise
            return self._at(part.address)._answer_to(call, retries)

    def _at(self, address: Address) -> Connection:
        if address == self._settings.address:
            return self
        with self._others_lock:
            self._check_open()  # a connection that is opened after `close` would stay open
            if address not in self._others:
                self._others[address] = Connection(self._settings.at(address))
            return self._others[address]

    def _answer_to(self, call: Call[Any], retries: Retries | None) -> Answer:
        with self._lock:
            try:
                return self._ask(call)
            except (ConnectionLost, MissingComponent) as error:
                return self._ask_again(call, error, self._settings.retries if retries is None else retries)

    def pipeline(self, wanted: Sequence[Call[Any]]) -> list[Any]:
        """Carries out many calls without waiting in between, and returns their results or errors in order.

        Nothing is retried. If the connection breaks, an error is raised, and some calls may have been carried out.
        """
        redirects = self._settings.redirects
        if redirects and any(redirects.knows(call.request) for call in wanted):
            return [self._result(call) for call in wanted]
        with self._lock:
            answers = [answer for part in _parts(wanted) for answer in self._ask_many(part)]
        for call, answer in zip(wanted, answers, strict=True):
            if type(answer) is Refused and answer.address:
                redirects.learn(call.request, answer)
        return [
            self._result(call) if type(answer) is Refused and answer.address else _result(call, answer)
            for call, answer in zip(wanted, answers, strict=True)
        ]

    def _result(self, call: Call[Any]) -> Any:
        """The result of a call that is redirected, or its error."""
        try:
            return self.run(call)
        except LavantError as error:
            return error

    def close(self) -> None:
        """Closes the connection for good."""
        with self._others_lock:
            self._is_closed = True
        for other in self._others.values():
            other.close()
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _answer(self, call: Call[T]) -> T:
        return self.run(call)

    async def _sleep(self, pause_s: float) -> None:
        time.sleep(pause_s)

    def _ask(self, call: Call[Any]) -> Answer:
        buffer = bytearray()
        append_request(buffer, 1, call.request)
        try:
            channel = self._channel_for(call.wait_ms, is_repeatable=call.is_repeatable)
            channel.write(buffer)
            return channel.read()[1]
        except BaseException:  # part of an answer may still arrive: the connection cannot be used again
            self._drop()
            raise

    def _ask_again(self, call: Call[Any], error: ConnectionLost | MissingComponent, retries: Retries) -> Answer:
        pauses = Pauses(retries)
        while True:
            may_repeat = (call.is_repeatable or isinstance(error, MissingComponent)) and not self._is_closed
            pause_s = pauses.after_s(error) if may_repeat else None
            if pause_s is None:
                raise error
            time.sleep(pause_s)
            try:
                return self._ask(call)
            except (ConnectionLost, MissingComponent) as another:
                error = another

    def _ask_many(self, wanted: Sequence[Call[Any]]) -> list[Answer]:
        """Returns the answers in the order of the calls; the server may send them in any order."""
        buffer = bytearray()
        for number, call in enumerate(wanted):
            append_request(buffer, number, call.request)
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
            self._drop()  # for example after a restart of the server: a new connection avoids an error
            channel = self._connected()
        channel.wait_up_to(self._settings.timeout_s + wait_ms / SECOND_MS)
        return channel

    def _connected(self) -> Channel:
        self._check_open()
        if self._channel is None:
            self._channel = Channel(self._settings)
        return self._channel

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionLost(f"this client of {self._settings.address} was closed; connect again")

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _parts(wanted: Sequence[Call[Any]]) -> Iterator[list[Call[Any]]]:
    """Splits calls into parts that fit into the socket buffers, so that writing never waits for reading."""
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
    """The approximate size of a request on the wire."""
    if isinstance(request, Send):
        return 64 + sum(len(entry.body) + len(entry.attributes) + 64 for entry in request.entries)
    if isinstance(request, Publish):
        return 64 + sum(map(len, request.publications))
    return 64


def _result(call: Call[Any], answer: Answer) -> Any:
    try:
        return call.read(answer)
    except LavantError as error:
        return error
