"""Frames over an asyncio transport, for the asynchronous client: many requests in flight, answers in any order."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import cast

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.frames import FAULT_NUMBER, GREETING_NUMBER, NUMBER_MAX, PREFACE, Hello, decode_answer
from lavant.broker.protocol.queues import Refused
from lavant.client.connection.errors import append_request, error_of
from lavant.client.connection.settings import ConnectionSettings
from lavant.core.errors import UNDECODABLE, ConnectionLost, LavantError, LimitExceeded, ServerUnreachable
from lavant.core.frames import Frames

CHECK_S_MAX = 5.0
UNDER_WAY_MAX = 100_000


class AsyncLink(asyncio.Protocol):
    """Writes all requests of one turn of the loop at once."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._address = settings.address
        self._timeout_s = settings.timeout_s
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._under_way: dict[int, tuple[asyncio.Future[Answer], float]] = {}
        self._number = 0
        self._buffer = bytearray(PREFACE)
        self._transport: asyncio.Transport | None = None
        self._is_flushing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._check_timer: asyncio.TimerHandle | None = None
        self.fault: LavantError | None = None
        """The error that ended the connection."""
        self.greeting: asyncio.Future[Answer] = self._loop.create_future()
        self.closed = asyncio.Event()
        append_request(self._buffer, GREETING_NUMBER, Hello(settings.token))
        self._under_way[GREETING_NUMBER] = (self.greeting, self._loop.time() + settings.timeout_s)

    def ask(self, request: Request, wait_ms: int) -> asyncio.Future[Answer]:
        """Sends a request, and returns the future answer."""
        if self.fault is not None:
            raise ServerUnreachable(f"{self.fault}; nothing was sent")
        number = self._next_number()
        append_request(self._buffer, number, request)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._under_way[number] = (future, self._loop.time() + self._timeout_s + wait_ms / 1000)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        return future

    async def writable(self) -> None:
        """Waits while the server does not read: it has enough to do."""
        if not self._writable.is_set():
            await self._writable.wait()

    @property
    def is_writable(self) -> bool:
        return self._writable.is_set()

    def close(self, fault: LavantError | None = None) -> None:
        self._fail(ConnectionLost(f"the connection to {self._address} was closed") if fault is None else fault)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._check_timer = self._loop.call_later(self._check_s, self._check)
        self._flush()

    def data_received(self, data: bytes) -> None:
        under_way = self._under_way
        try:
            for number, content in self._frames.feed(data):
                answer = decode_answer(content)
                future, _ = under_way.pop(number, (None, 0))
                if future is not None and not future.done():
                    future.set_result(answer)
                elif number == FAULT_NUMBER and isinstance(answer, Refused):
                    self.close(error_of(answer))
        except (ValueError, *UNDECODABLE) as error:  # not a frame, or not an answer
            self.close(ConnectionLost(f"{self._address} sent an invalid answer: {error}; is it a Lavant server?"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._fail(
            ConnectionLost(
                f"the connection to {self._address} broke: {'the server closed it' if exc is None else exc}; "
                "requests may or may not have been carried out"
            )
        )

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _next_number(self) -> int:
        if len(self._under_way) >= UNDER_WAY_MAX:
            raise LimitExceeded(f"{UNDER_WAY_MAX} requests are in flight; wait for some answers first")
        while True:
            self._number = self._number % NUMBER_MAX + 1
            if self._number not in self._under_way:
                return self._number

    def _flush(self) -> None:
        self._is_flushing = False
        if self._transport is not None and self._buffer:
            data, self._buffer = self._buffer, bytearray()
            self._transport.write(data)

    @property
    def _check_s(self) -> float:
        return min(self._timeout_s / 4, CHECK_S_MAX)

    def _check(self) -> None:
        """One timer for all requests: closes the connection if an answer is overdue."""
        now = self._loop.time()
        if any(due < now for _, due in self._under_way.values()):
            self.close(ConnectionLost(f"{self._address} was silent for {self._timeout_s:g} s; is it stopped?"))
        else:
            self._check_timer = self._loop.call_later(self._check_s, self._check)

    def _fail(self, fault: LavantError) -> None:
        if self.fault is None:
            self.fault = fault
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._writable.set()
        for future, _ in self._under_way.values():
            if not future.done():
                future.set_exception(copy(self.fault))  # a copy each, for a traceback each
        self._under_way.clear()
