"""HTTP on the server's port: health, metrics, the HTTP interface, and everything else to the SQS protocol.

uvicorn's protocol classes read and write HTTP and WebSockets; here is the one application behind them, which decides by
the path alone who answers. Calls of SQS in JSON, as today's clients send them, take a shorter way: see `exchange`.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from typing import Any, TypeAlias, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from lavant.service.admission import Ticket
from lavant.service.api.connections import STATE as CONNECTION
from lavant.service.browser_guard import BrowserGuard, Guarded
from lavant.service.exchange import Exchange, encode_response
from lavant.service.limits import ServiceLimits
from lavant.service.openmetrics import CONTENT_TYPE
from lavant.service.sqs import SqsApp
from lavant.service.sqs.desk import ClientGone

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEAD_BYTES_MAX = 64 << 10
"""Of the line of a request and its headers."""
KEEP_ALIVE_S = 75
FRAME_BYTES_MAX = 1 << 20
"""Of what clients send over a WebSocket."""
DATE_S = 1.0
PLAIN_TEXT = "text/plain; charset=utf-8"
OPERATIONS_PATHS = frozenset({"/healthz", "/metrics"})


class Operations:
    """`/healthz` and `/metrics`, for operators and their programs. `may_see` says who may see the metrics."""

    def __init__(
        self,
        *,
        health: Callable[[], str | None],
        metrics: Callable[[], Awaitable[bytes]],
        may_see: Callable[[str], bool] = lambda secret: True,
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._may_see = may_see

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in OPERATIONS_PATHS:
            await _respond(scope, send, 404, PLAIN_TEXT, b"here are /metrics and /healthz only\n")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _respond(scope, send, 405, PLAIN_TEXT, b"only GET and HEAD\n")
        elif scope["path"] == "/metrics":
            await self._show_metrics(scope, send)
        else:
            fault = self._health()
            status, text = (200, "ok\n") if fault is None else (503, f"{fault}\n")
            await _respond(scope, send, status, PLAIN_TEXT, text.encode())

    async def _show_metrics(self, scope: Scope, send: Send) -> None:
        if self._may_see(_bearer(scope)):
            await _respond(scope, send, 200, CONTENT_TYPE, await self._metrics())
        else:
            said = b"metrics need a key: that of --metrics-key or an operator's, as `Authorization: Bearer KEY`\n"
            await _respond(scope, send, 401, PLAIN_TEXT, said, (b"www-authenticate", b"Bearer"))


class HttpApplication:
    """What begins with one of `api_paths` is the HTTP interface's; `paths` are those of the operators that are on this
    port; the rest is SQS."""

    def __init__(
        self,
        *,
        operations: Application,
        paths: frozenset[str] = OPERATIONS_PATHS,
        api: Application,
        api_paths: frozenset[str],
        sqs: Application,
    ) -> None:
        self._operations = operations
        self._paths = paths
        self._api = api
        self._api_paths = api_paths
        self._sqs = sqs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._choose(scope)(scope, receive, send)

    def _choose(self, scope: Scope) -> Application:
        path: str = scope["path"]
        end = path.find("/", 1)
        if (path if end < 0 else path[:end]) in self._api_paths or scope["type"] == "websocket":
            return self._api
        if scope["method"] not in {"GET", "HEAD"}:
            return self._sqs
        if path == "/" and b"Action=" not in scope["query_string"]:
            return self._api
        return self._operations if path in self._paths else self._sqs


def _bearer(scope: Scope) -> str:
    """The secret that a request shows, if it shows one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, secret = value.decode("latin-1").partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else ""
    return ""


async def _respond(
    scope: Scope, send: Send, status: int, content_type: str, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


class _Protocol(HttpToolsProtocol):
    """One connection. uvicorn's own reads heads without end, in size and in time, and knows nothing but ASGI."""

    _head_bytes = 0
    _arriving: Exchange | None = None
    """One whose body is not yet complete."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        heads: dict[_Protocol, float],
        sqs: SqsApp | None,
        ticket: Ticket,
        guard: BrowserGuard,
    ) -> None:
        super().__init__(config, state, {CONNECTION: self})
        self.ticket = ticket
        self._guard = guard
        self._heads = heads
        """Those whose head has not arrived yet, and since when."""
        self._sqs = sqs

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heads[self] = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heads.pop(self, None)
        self.ticket.leave()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._heads.setdefault(self, self.loop.time())
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._heads.pop(self, None)
        if self.url == b"/" and self.parser.get_method() == b"POST":
            headers = dict(self.headers)
            if self._is_simple(headers):
                self._arriving = Exchange(headers, self.headers, keep_alive=self.parser.should_keep_alive())
                self.cycle = cast(RequestResponseCycle, self._arriving)
                return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._arriving is None:
            super().on_body(body)
        else:
            self._arriving.take(body)

    def on_message_complete(self) -> None:
        exchange, self._arriving = self._arriving, None
        if exchange is None:
            super().on_message_complete()
            return
        task = self.loop.create_task(self._answer(exchange))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _is_simple(self, headers: dict[bytes, bytes]) -> bool:
        """A call of SQS like most; whatever is special about others, uvicorn and the application see to it."""
        length = headers.get(b"content-length", b"")
        return (
            self._sqs is not None
            and b"x-amz-target" in headers
            and len(headers) == len(self.headers)
            and self._guard.is_plain(headers)
            and self.parser.get_http_version() == "1.1"
            and len(length) < 10
            and length.isdigit()
            and int(length) <= self._sqs.body_bytes_max
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and (self.cycle is None or self.cycle.response_complete)
        )

    async def _answer(self, exchange: Exchange) -> None:
        assert self._sqs is not None
        try:
            response = await self._sqs.answer(exchange.request(), cast(str, self.scheme), exchange.gone)
        except ClientGone:
            return
        if self.flow.write_paused and not exchange.disconnected:
            await self.flow.drain()
        if exchange.disconnected:
            return
        headers = self.server_state.default_headers
        self.transport.write(encode_response(response, headers, keep_alive=exchange.keep_alive))
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def unsent_bytes(self) -> int:
        """What was written, and the other machine has not confirmed."""
        waiting = self.transport.get_write_buffer_size()
        socket = self.transport.get_extra_info("socket")
        if socket is None or self.transport.is_closing():
            return waiting
        unconfirmed = bytearray(4)
        try:
            fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, unconfirmed)
        except OSError:  # a system that does not tell
            return waiting
        return waiting + int.from_bytes(unconfirmed, sys.byteorder)

    def abort(self) -> None:
        self.transport.abort()

    def authenticated(self) -> None:
        self.ticket.authenticated()

    def _count(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError(f"a request's head has more than {HEAD_BYTES_MAX} bytes")


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's own takes an answer in place of a WebSocket for a mistake, and says so in the log."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.app_state[CONNECTION].ticket.leave()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True


class HttpProtocols:
    """Makes a protocol for each connection that speaks HTTP, and ends them all. Without `sqs`, nothing takes the short
    way there. Everything passes the guard."""

    def __init__(
        self, application: Application, sqs: SqsApp | None, limits: ServiceLimits, guard: BrowserGuard
    ) -> None:
        self._guard = guard
        self._config = Config(
            Guarded(application, guard),
            loop="none",
            http=_Protocol,
            ws=_WebSocketProtocol,
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
        self._head_s_max = limits.head_s_max
        self._heads: dict[_Protocol, float] = {}
        self._each_second()

    def __len__(self) -> int:
        return len(self._state.connections)

    @property
    def requests(self) -> int:
        return self._state.total_requests

    def __call__(self, ticket: Ticket) -> asyncio.Protocol:
        return _Protocol(self._config, self._state, self._heads, self._sqs, ticket, self._guard)

    def _each_second(self) -> None:
        """The date is in the head of every answer; and heads that do not end are waited for no longer."""
        loop = asyncio.get_running_loop()
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        late = loop.time() - self._head_s_max
        for protocol in [protocol for protocol, since_s in self._heads.items() if since_s < late]:
            protocol.abort()
        self._timer = loop.call_later(DATE_S, self._each_second)

    async def stop(self, seconds_max: float) -> None:
        """Close idle connections, and others after their answer or when time is up."""
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
