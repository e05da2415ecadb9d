"""HTTP/1.1 connections: adds to uvicorn's protocol the bounds that it lacks.

    idle ──first byte──► head ──empty line──► body ──its end──► idle
              head_s_max, HEAD_BYTES_MAX   body_s_max, and as many bytes as the handler reads

Each part of a request must arrive in time, whether or not a handler reads it. A late body is answered with 408. The
client must read its answers within `unread_s_max`.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import select
import sys
import termios
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from lavant.service.auth.audit.log import peer_of
from lavant.service.auth.browser_guard import BrowserGuard, Guarded
from lavant.service.auth.tenants import Tenant
from lavant.service.aws.http import HttpResponse, body_bytes
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.http.errors import PROBLEM, problem
from lavant.service.net.admission import Ticket
from lavant.service.net.connections import STATE as CONNECTION
from lavant.service.net.connections import ClientGone
from lavant.service.net.http_dispatch import Application
from lavant.service.net.http_server.fast_path import FastPathExchange, encode_response
from lavant.service.net.http_server.websockets import FRAME_BYTES_MAX, WebSocketProtocol
from lavant.service.observability.logs import tell_of_malformed_request
from lavant.service.runtime.limits import ServiceLimits
from lavant.service.runtime.readiness import Readiness

HEAD_BYTES_MAX = 64 << 10
"""Of the request line and headers, and of the trailers of a chunked body."""
CHUNKED_BYTES = 2
"""A chunked body may take this many times its size on the wire."""
KEEP_ALIVE_S = 75
_HUNG_UP: int = getattr(select, "POLLRDHUP", 0)  # of Linux
logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != "Invalid HTTP request received.")
"""`send_400_response` tells it, with the peer, and not for every one of many."""
CHECK_S = 1.0
"""Interval of the check for missed deadlines."""


class Deadlines:
    """Deadlines of connections, in the loop's time."""

    def __init__(self) -> None:
        self.arriving: dict[HttpConnection, float] = {}
        """A request has begun and must be complete by then."""
        self.unread: dict[HttpConnection, float] = {}
        """Answers are waiting and must be read by then."""

    def forget(self, connection: HttpConnection) -> None:
        self.arriving.pop(connection, None)
        self.unread.pop(connection, None)

    def check(self, now_s: float) -> None:
        """End connections that missed a deadline."""
        for connection in [each for each, due_s in self.arriving.items() if due_s < now_s]:
            connection.is_late(now_s)
        for connection in [each for each, due_s in self.unread.items() if due_s < now_s]:
            connection.abort()


class QuietTransport:
    """Drops data that is written after the transport closed, where uvloop raises; otherwise the transport below.

    Between the end of a connection and `connection_lost`, the code that answers cannot know that it ended.
    """

    __slots__ = ("_transport", "_write", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._write = transport.write
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpConnection(HttpToolsProtocol):
    """One connection. `sqs` answers calls on the fast path, if given."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: ServiceLimits,
        deadlines: Deadlines,
        sqs: SqsApp | None,
        guard: BrowserGuard,
        ticket: Ticket,
    ) -> None:
        super().__init__(config, state, {CONNECTION: self})
        self.ticket = ticket
        self._guard = guard
        self._limits = limits
        self._deadlines = deadlines
        self._sqs = sqs
        self._head_bytes = 0
        self._fed_bytes = 0
        """Bytes of the current part of the arriving request, without those that came with its first bytes."""
        self._is_head = self._is_body = False
        self._is_over = False
        self._arriving: FastPathExchange | None = None
        """On the fast path, while its body is incomplete."""
        self._running: RequestResponseCycle | None = None
        """The request being answered; uvicorn keeps only the latest one, behind which this may be."""
        self._watchers: dict[Callable[[], None], None] = {}

    # ── called by the event loop ──────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, QuietTransport(transport)))
        self._deadlines.arriving[self] = self.loop.time() + self._limits.head_s_max

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadlines.forget(self)
        self.ticket.leave()
        self._is_over = True
        watchers, self._watchers = self._watchers, {}
        for callback in watchers:
            callback()
        if self._arriving is not None:
            self._arriving.reservation.release()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._is_body:  # also empty lines between two requests
            self._deadlines.arriving.setdefault(self, self.loop.time() + self._limits.head_s_max)
        self._fed_bytes += len(data)
        super().data_received(data)
        if self._is_head and self._fed_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")
        elif self._is_body and self._fed_bytes > self._body_bytes_max():
            self.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deadlines.unread[self] = self.loop.time() + self._limits.unread_s_max

    def resume_writing(self) -> None:
        self._deadlines.unread.pop(self, None)
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        self._deadlines.forget(self)
        super().handle_websocket_upgrade()

    def timeout_keep_alive_handler(self) -> None:
        """Idle for so long that earlier answers were read, or never will be."""
        self.abort()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP like any other error, and tells who sent it; uvicorn does neither."""
        tell_of_malformed_request(peer_of({"client": self.client}))
        body = problem(400, "InvalidRequest", f"{msg.rstrip('.')}; send a request as HTTP/1.1 defines it")
        response = HttpResponse(400, [(b"content-type", PROBLEM.encode())], body)
        self.transport.write(encode_response(response, self.server_state.default_headers, keep_alive=False))
        self.transport.close()

    # ── called by the parser ──────────────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self._head_bytes = self._fed_bytes = 0
        self._is_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head, self._is_body = False, True
        self._fed_bytes = 0
        self._deadlines.arriving[self] = self.loop.time() + self._limits.body_s_max
        self._arriving = self._fast_path()
        if self._arriving is None:
            super().on_headers_complete()
        else:
            self.cycle = cast(RequestResponseCycle, self._arriving)

    def on_body(self, body: bytes) -> None:
        if self._arriving is None:
            super().on_body(body)
        else:
            self._arriving.take(body)

    def on_message_complete(self) -> None:
        self._is_body = False
        self._deadlines.arriving.pop(self, None)
        exchange, self._arriving = self._arriving, None
        if exchange is None:
            super().on_message_complete()
            return
        task = self.loop.create_task(self._answer(exchange))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    # ── called by handlers ────────────────────────────────────────────────────────────────────────────────────────────

    def unsent_bytes(self) -> int:
        """Bytes written that the client's machine has not acknowledged."""
        waiting = self.transport.get_write_buffer_size()
        socket = self.transport.get_extra_info("socket")
        if socket is None or self.transport.is_closing():
            return waiting
        unacknowledged = bytearray(4)
        try:
            fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, unacknowledged)
        except OSError:  # not supported by this system
            return waiting
        return waiting + int.from_bytes(unacknowledged, sys.byteorder)

    @property
    def is_lost(self) -> bool:
        """The event loop may report it later: not before the next turn, nor while reading is paused, as for a pipelined
        request behind this one."""
        return self.transport.is_closing() or _has_hung_up(self.transport.get_extra_info("socket"))

    def watch(self, callback: Callable[[], None]) -> None:
        if self._is_over:
            callback()
        else:
            self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        self._watchers.pop(callback, None)

    @property
    def peer(self) -> str:
        return peer_of({"client": self.client})

    def abort(self) -> None:
        self.transport.abort()

    def authenticated(self, tenant: Tenant) -> None:
        self.ticket.authenticated(tenant)

    def is_late(self, now_s: float) -> None:
        """The arriving request missed its deadline. A pipelined one is not being read and gets more time."""
        if self.pipeline:
            self._deadlines.arriving[self] = now_s + self._limits.body_s_max
        elif self._is_body and not self._is_answered():
            self._close_with(_too_slow(self._limits.body_s_max))
        else:
            self.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fast_path(self) -> FastPathExchange | None:
        """An exchange for an ordinary SQS call; None for all others, which uvicorn and the application handle."""
        if self.url != b"/" or self.parser.get_method() != b"POST" or self._sqs is None:
            return None
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"")
        if (
            b"x-amz-target" not in headers
            or len(headers) != len(self.headers)
            or not self._guard.is_plain(headers)
            or self.parser.get_http_version() != "1.1"
            or len(length) >= 10
            or not length.isdigit()
            or self.expect_100_continue
            or self.parser.should_upgrade()
            or (self.cycle is not None and not self.cycle.response_complete)
        ):
            return None
        exchange = FastPathExchange(headers, self.headers, keep_alive=self.parser.should_keep_alive())
        try:
            exchange.claim = self._sqs.claim(exchange.request())
            size_bytes = body_bytes(headers, self._sqs.body_bytes_max)
            exchange.reservation = self._sqs.reserve(exchange.claim, size_bytes)
        except SqsError:  # the application reports the same error
            return None
        return exchange

    def _close_with(self, last: bytes) -> None:
        """Send an answer and close. Incoming data is discarded: closing at once could lose the answer."""
        self._is_over = True
        self._deadlines.forget(self)
        self.transport.write(last)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(self._limits.stop_s_max, self.abort)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        # A keep-alive connection that is closing was lost before this was written; others are closed afterwards.
        if self.cycle is None or not self.cycle.keep_alive or not self.transport.is_closing():
            self._watchers.clear()
        super().on_response_complete()

    async def _answer(self, exchange: FastPathExchange) -> None:
        assert self._sqs is not None
        request = exchange.request()
        exchange.reservation.release()  # the signature is checked at once from here on
        try:
            response = await self._sqs.answer(request, exchange.claim, cast(str, self.scheme), self)
        except ClientGone:
            return
        if self.flow.write_paused and not exchange.disconnected:
            await self.flow.drain()
        if self.transport.is_closing():
            return
        headers = self.server_state.default_headers
        self.transport.write(encode_response(response, headers, keep_alive=exchange.keep_alive))
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _is_answered(self) -> bool:
        """Whether the answer to the arriving request has begun."""
        cycle = self.cycle
        return cycle is not None and (cycle.response_complete or getattr(cycle, "response_started", False))

    def _body_bytes_max(self) -> int:
        """Bytes that may have arrived of an incomplete body."""
        if self._is_answered():
            return self._limits.discarded_bytes_max
        return CHUNKED_BYTES * self._limits.body_bytes_max + HEAD_BYTES_MAX

    def _count(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError(f"the head of a request has more than {HEAD_BYTES_MAX} bytes")


def _has_hung_up(socket: Any) -> bool:
    """Whether the client has closed the connection, even if there is unread data."""
    if socket is None or socket.fileno() < 0 or not _HUNG_UP:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _HUNG_UP)
    return bool(poll.poll(0))


def _too_slow(seconds: float) -> bytes:
    reason = f"the body did not arrive within {seconds:g} s; send less at once"
    response = HttpResponse(408, [(b"content-type", PROBLEM.encode())], problem(408, "TooSlow", reason))
    return encode_response(response, (), keep_alive=False)


class HttpProtocols:
    """Creates the protocol of each HTTP connection, and stops them all. All requests pass the guard. Connections made
    before the server is ready do not use the fast path, and none do without `sqs`."""

    def __init__(
        self,
        application: Application,
        sqs: SqsApp | None,
        limits: ServiceLimits,
        guard: BrowserGuard,
        *,
        readiness: Readiness | None = None,
    ) -> None:
        self._guard = guard
        self._readiness = readiness
        self._config = Config(
            Guarded(application, guard),
            loop="none",
            http=HttpConnection,
            ws=WebSocketProtocol,
            ws_max_size=FRAME_BYTES_MAX,
            ws_ping_interval=limits.heartbeat_s,
            ws_ping_timeout=limits.heartbeat_s,
            ws_per_message_deflate=False,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
        self._sqs = sqs
        self._state = ServerState()
        self._limits = limits
        self._deadlines = Deadlines()
        self._each_second()

    def __len__(self) -> int:
        return len(self._state.connections)

    @property
    def requests(self) -> int:
        return self._state.total_requests

    def __call__(self, ticket: Ticket) -> asyncio.Protocol:
        sqs = self._sqs if self._readiness is None or self._readiness.is_serving else None
        return HttpConnection(self._config, self._state, self._limits, self._deadlines, sqs, self._guard, ticket)

    def _each_second(self) -> None:
        """Update the `Date` header of answers, and check deadlines."""
        loop = asyncio.get_running_loop()
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._deadlines.check(loop.time())
        self._timer = loop.call_later(CHECK_S, self._each_second)

    async def stop(self, seconds_max: float) -> None:
        """Close idle connections at once, others after their answer or when time is up."""
        self._timer.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds_max)
            for task in late:
                task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
