"""HTTP on the server's port: health, metrics, and everything else to the SQS protocol.

uvicorn's protocol class reads and writes HTTP; here is the one application behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from typing import Any, TypeAlias

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from lavant.service.openmetrics import CONTENT_TYPE

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEAD_BYTES_MAX = 64 << 10
"""Of the line of a request and its headers."""
KEEP_ALIVE_S = 75
DATE_S = 1.0


class HttpApplication:
    """`/healthz` and `/metrics`; the rest is SQS."""

    def __init__(self, *, health: Callable[[], str | None], metrics: Callable[[], str], sqs: Application) -> None:
        self._health = health
        self._metrics = metrics
        self._sqs = sqs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["method"] not in {"GET", "HEAD"} or path not in {"/healthz", "/metrics"}:
            await self._sqs(scope, receive, send)
        elif path == "/metrics":
            await _respond(scope, send, 200, CONTENT_TYPE, self._metrics())
        else:
            fault = self._health()
            status, text = (200, "ok\n") if fault is None else (503, f"{fault}\n")
            await _respond(scope, send, status, "text/plain; charset=utf-8", text)


async def _respond(scope: Scope, send: Send, status: int, content_type: str, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


class _BoundedProtocol(HttpToolsProtocol):
    """uvicorn's own reads headers without end."""

    _head_bytes = 0

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError(f"a request's head has more than {HEAD_BYTES_MAX} bytes")


class HttpProtocols:
    """Makes a protocol for each connection that speaks HTTP, and ends them all."""

    def __init__(self, application: Application, connections_max: int) -> None:
        self._config = Config(
            application,
            loop="none",
            http=_BoundedProtocol,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=connections_max,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
        self._state = ServerState()
        self._set_date()

    def __len__(self) -> int:
        return len(self._state.connections)

    @property
    def requests(self) -> int:
        return self._state.total_requests

    def __call__(self) -> asyncio.Protocol:
        return _BoundedProtocol(self._config, self._state, {})

    def _set_date(self) -> None:
        """Each second: the date is in the head of every answer."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._date_timer = asyncio.get_running_loop().call_later(DATE_S, self._set_date)

    async def stop(self, seconds_max: float) -> None:
        """Close idle connections, and others after their answer or when time is up."""
        self._date_timer.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds_max)
            for task in late:
                task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
