"""Server-sent events: `GET /subscriptions/{name}/events`, and `GET /events?filter=…`.

    leased ──written──► on its way ──the client's machine has it──► there ──settle_s later──► acknowledged
       └─────────────────────┴──────────── connection ended ───────────┴──► back in the queue at once

A stream of events has one way only: the client cannot acknowledge. What can be known is that the client's machine
confirmed every byte that was written (TCP), and that the connection lived on for a while. That much is taken for an
acknowledgement. So an event is delivered at least once to a client that reads what its machine receives within
`settle_s`. One that hangs for longer and then crashes may miss what it had received and not read; who must process
every message uses the WebSocket or `receive`, which have acknowledgements.

A client that reconnects sends `Last-Event-ID`, as browsers do: what it had is acknowledged, the rest comes again.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from lavant.broker.protocol.queues import Delivery
from lavant.service.auth.keys import Principal
from lavant.service.delivery.queue import acknowledge
from lavant.service.delivery.stream import SSE, PrefetchWindow, StreamDelivery
from lavant.service.http.context import ApiContext
from lavant.service.http.errors import ApiError, bad_request, response_of
from lavant.service.http.streams.stream_source import attached, first_of
from lavant.service.net.connections import connection_of

PREFETCH = 1000
HEARTBEAT = b":\n\n"
EVENT_STREAM = "text/event-stream"
HEADERS = [
    (b"content-type", EVENT_STREAM.encode() + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies are not to collect events
]


class EventStreams:
    """An ASGI application for requests for a stream of events."""

    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        desk = self._desk
        try:
            if request.method != "GET":
                raise ApiError(405, "NoSuchRoute", "a stream is for GET", headers={"Allow": "GET"})
            principal = desk.principal(request)
            _check_accepted(request)
            last = _last_event(request)
            with desk.stream(SSE, principal):
                async with attached(desk, principal, request, prefetch=PREFETCH) as window:
                    await acknowledge(desk.service, window.queue, desk.lately.had(window.queue, last))
                    desk.lately.opened(window.queue, window)
                    try:
                        await _Stream(desk, principal, window, scope, receive, send).run()
                    finally:
                        desk.lately.ended(window.queue, window)
        except ApiError as error:
            await response_of(error)(scope, receive, send)


class _Stream:
    """One connection. Errors before its head was sent are answered; later ones are its last event."""

    def __init__(
        self, desk: ApiContext, principal: Principal, window: PrefetchWindow, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._desk = desk
        self._limits = desk.limits
        self._principal = principal
        self._window = window
        self._connection = connection_of(scope)
        self._receive = receive
        self._send = send
        self._written: deque[int] = deque()
        """Numbers of events that are on their way."""
        self._there: deque[tuple[float, list[int]]] = deque()
        """Since when which events are there."""
        self._wrote_s = time.monotonic()

    async def run(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        try:
            await self._write(HEARTBEAT)
            await first_of(
                self._feed(),
                self._settle(),
                self._gone(),
                self._desk.revoked(self._principal),
                self._desk.stopping.wait(),
            )
        except ApiError as error:  # its queue was deleted, or its key revoked
            if not self._principal.is_revoked:
                await self._write(b"event: end\ndata: " + error.code.encode() + b"\n\n")
        except TimeoutError:
            self._connection.abort()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _feed(self) -> None:
        while True:
            deliveries = await self._desk.lease(self._window)
            if deliveries:
                await self._write(b"".join(map(event_of, deliveries)))
                if not self._connection.is_lost:
                    self._window.sent(delivery.receipt.number for delivery in deliveries)
                self._written.extend(delivery.receipt.number for delivery in deliveries)
                self._desk.deliveries[StreamDelivery].delivered[SSE] += len(deliveries)

    async def _settle(self) -> None:
        """Acknowledge what has been there for long enough; keep the line busy."""
        while True:
            await asyncio.sleep(self._limits.settle_s / 2)
            if self._connection.is_lost:
                return
            now_s = time.monotonic()
            if self._written and self._connection.unsent_bytes() == 0:
                self._there.append((now_s, list(self._written)))
                self._written.clear()
            while self._there and self._there[0][0] + self._limits.settle_s <= now_s:
                await self._window.acknowledge(self._there.popleft()[1])
            if now_s - self._wrote_s >= self._limits.heartbeat_s:
                await self._write(HEARTBEAT)

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _write(self, data: bytes) -> None:
        """Waits while the client does not read, but not for ever. Nothing leaves for a key that is no more."""
        self._desk.check(self._principal)
        async with asyncio.timeout(self._limits.unread_s_max):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._wrote_s = time.monotonic()


def event_of(delivery: Delivery) -> bytes:
    """A message as an event. One that is no text has the event type `base64`.

    >>> from lavant.broker.protocol.queues import Receipt
    >>> event_of(Delivery(Receipt(7, 1), b'{"price":3}', b"", 0, 0, 1, "", ""))
    b'id: 7\\ndata: {"price":3}\\n\\n'
    """
    body, kind = delivery.body, b""
    try:
        body.decode()
    except UnicodeDecodeError:
        body, kind = base64.b64encode(body), b"event: base64\n"
    lines = b"".join(b"data: " + line + b"\n" for line in body.splitlines() or [b""])
    return b"id: %d\n" % delivery.receipt.number + kind + lines + b"\n"


def _check_accepted(request: Request) -> None:
    """A stream leases and acknowledges by GET. `EventSource` accepts events; images and scripts of a page do not."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "").split(",")]
    if EVENT_STREAM not in kinds:
        raise ApiError(
            406,
            "NotAcceptable",
            f"this is a stream of events; ask for it with the header `Accept: {EVENT_STREAM}`",
        )


def _last_event(request: Request) -> int:
    text = request.headers.get("last-event-id", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request(f"Last-Event-ID is the id of an event of this stream, got {text[:40]!r}")
    return int(text)
