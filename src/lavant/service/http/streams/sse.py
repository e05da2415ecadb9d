"""Server-sent events: `GET /subscriptions/{name}/events`, and `GET /events?filter=…`.

    leased ──written──► in transit ──the client's machine has it──► arrived ──settle_s later──► acknowledged
       └─────────────────────┴──────────── connection ended ───────────┴──► back in the queue at once

A client of an event stream cannot acknowledge. The server knows that the client's machine confirmed every byte that was
written (TCP), and that the connection stayed open for a while, and takes that for an acknowledgement. So an event is
delivered at least once to a client that reads what its machine receives within `settle_s`. A client that hangs for
longer and then crashes may miss events it had received and not read. If you must process every message, use the
WebSocket or `receive`, which have acknowledgements.

A client that reconnects sends `Last-Event-ID`, as browsers do: events up to it are acknowledged, the rest comes again.
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
from lavant.service.http.errors import ApiError, bad_request, redirected, response_of
from lavant.service.http.streams.stream_source import attached, continued_at, first_of
from lavant.service.net.connections import connection_of

PREFETCH = 1000
HEARTBEAT = b":\n\n"
EVENT_STREAM = "text/event-stream"
HEADERS = [
    (b"content-type", EVENT_STREAM.encode() + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # tells proxies not to buffer events
]


class EventStreams:
    """An ASGI application for event streams."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        context = self._context
        try:
            if request.method != "GET":
                raise ApiError(405, "NoSuchRoute", "a stream is for GET", headers={"Allow": "GET"})
            principal = context.principal(request)
            _check_accepted(request)
            last = _last_event(request)
            with context.stream(SSE, principal):
                async with attached(context, principal, request, prefetch=PREFETCH) as window:
                    await acknowledge(context.service, window.queue, context.sse_resume.had(window.queue, last))
                    context.sse_resume.opened(window.queue, window)
                    try:
                        await _Stream(context, principal, window, scope, receive, send).run()
                    finally:
                        context.sse_resume.ended(window.queue, window)
        except ApiError as error:
            await response_of(redirected(error, request))(scope, receive, send)


class _Stream:
    """One connection. Errors before the head is sent are answered; a later error is the last event."""

    def __init__(
        self,
        context: ApiContext,
        principal: Principal,
        window: PrefetchWindow,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._context = context
        self._limits = context.limits
        self._principal = principal
        self._window = window
        self._request = Request(scope)
        self._connection = connection_of(scope)
        self._receive = receive
        self._send = send
        self._written: deque[int] = deque()
        """Numbers of events in transit."""
        self._arrived: deque[tuple[float, list[int]]] = deque()
        """Events that have arrived, with the time."""
        self._wrote_s = time.monotonic()

    async def run(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        try:
            await self._write(HEARTBEAT)
            await first_of(
                self._feed(),
                self._settle(),
                self._gone(),
                self._context.revoked(self._principal),
                self._context.stopping.wait(),
            )
        except ApiError as error:  # its queue was deleted or has moved, or its key was revoked
            if not self._principal.is_revoked:
                await self._write(end_of(error, continued_at(error, self._request, self._window, "events")))
        except TimeoutError:
            self._connection.abort()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _feed(self) -> None:
        while True:
            deliveries = await self._context.lease(self._window)
            if deliveries:
                await self._write(b"".join(map(event_of, deliveries)))
                if not self._connection.is_lost:
                    self._window.sent(delivery.receipt.number for delivery in deliveries)
                self._written.extend(delivery.receipt.number for delivery in deliveries)
                self._context.deliveries[StreamDelivery].delivered[SSE] += len(deliveries)

    async def _settle(self) -> None:
        """Acknowledges events that arrived `settle_s` ago, and sends heartbeats."""
        while True:
            await asyncio.sleep(self._limits.settle_s / 2)
            if self._connection.is_lost:
                return
            now_s = time.monotonic()
            if self._written and self._connection.unsent_bytes() == 0:
                self._arrived.append((now_s, list(self._written)))
                self._written.clear()
            while self._arrived and self._arrived[0][0] + self._limits.settle_s <= now_s:
                await self._window.acknowledge(self._arrived.popleft()[1])
            if now_s - self._wrote_s >= self._limits.heartbeat_s:
                await self._write(HEARTBEAT)

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _write(self, data: bytes) -> None:
        """Writes, and waits up to `unread_s_max` while the client does not read. Raises if the key was revoked."""
        self._context.check(self._principal)
        async with asyncio.timeout(self._limits.unread_s_max):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._wrote_s = time.monotonic()


def end_of(error: ApiError, address: str | None) -> bytes:
    """The last event of a stream: the code of an error, and the address at which the stream goes on, if it does.

    >>> end_of(ApiError(404, "UnknownQueue", "there is no such queue"), None)
    b'event: end\\ndata: UnknownQueue\\n\\n'
    """
    data = error.code if address is None else f"{error.code} {address}"
    return f"event: end\ndata: {data}\n\n".encode()


def event_of(delivery: Delivery) -> bytes:
    """A message as an event. If it is not text, its event type is `base64`.

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
    """A stream changes state by GET: `EventSource` accepts events, images and scripts of a page do not."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "").split(",")]
    if EVENT_STREAM not in kinds:
        raise ApiError(
            406,
            "NotAcceptable",
            f"an event stream needs the header `Accept: {EVENT_STREAM}`",
        )


def _last_event(request: Request) -> int:
    text = request.headers.get("last-event-id", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request(f"Last-Event-ID must be the id of an event, got {text[:40]!r}")
    return int(text)
