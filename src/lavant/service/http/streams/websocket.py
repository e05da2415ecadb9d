"""WebSockets with acknowledgements: `/subscriptions/{name}/stream`, and `/stream?filter=…`.

    server ► client   {"id": 7, "attempt": 1, "publication": {…}}
    client ► server   {"ack": [7]}     done; it does not come again
                      {"nack": [7]}    not done; it comes again at once, to any consumer
    server ► client   {"acknowledged": [7], "refused": []}     when that is on the server's disk

At least once: a message that is not acknowledged when the connection ends, or when its lease expires, comes again. At
most `prefetch` messages are unacknowledged at any time, so a client that does not acknowledge gets no more.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected, WebSocketState

from lavant.broker.protocol.queues import Refused
from lavant.core.errors import UNDECODABLE
from lavant.service.auth.keys import Principal
from lavant.service.delivery.stream import WEBSOCKET, PrefetchWindow, StreamDelivery
from lavant.service.http.context import ApiContext
from lavant.service.http.errors import ApiError, redirected, response_of
from lavant.service.http.routes.receive import content_of
from lavant.service.http.schemas import StreamConfirmation, StreamMessage, StreamReply, refused_entries
from lavant.service.http.streams.stream_source import attached, continued_at, first_of
from lavant.service.net.connections import connection_of

PREFETCH = 100
LEFT = (WebSocketDisconnect, WebSocketDisconnected)
"""The client is gone: noticed now, or before."""
BAD_FRAME, GOING_AWAY, POLICY = 1007, 1001, 1008
MOVED = 4307
"""The reason is the address at which the stream goes on: the subscription is at another broker."""

_decode = msgspec.json.Decoder(StreamReply).decode
_encode = msgspec.json.Encoder().encode


class Streams:
    """An ASGI application for WebSockets."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        context = self._context
        try:
            principal = context.principal(socket)
            with context.stream(WEBSOCKET, principal):
                async with attached(context, principal, socket, prefetch=PREFETCH) as window:
                    await socket.accept()
                    await _Stream(context, principal, window, socket).run()
        except ApiError as error:
            with suppress(*LEFT):
                await socket.send_denial_response(response_of(redirected(error, socket)))
        except LEFT:  # before the handshake ended, or during the denial
            pass


class _Stream:
    """One accepted connection."""

    def __init__(self, context: ApiContext, principal: Principal, window: PrefetchWindow, socket: WebSocket) -> None:
        self._context = context
        self._principal = principal
        self._window = window
        self._socket = socket
        self._connection = connection_of(socket.scope)

    async def run(self) -> None:
        code, reason = GOING_AWAY, "the server stops"
        try:
            await first_of(
                self._feed(), self._listen(), self._context.revoked(self._principal), self._context.stopping.wait()
            )
        except LEFT:
            return
        except UNDECODABLE as error:
            code, reason = BAD_FRAME, f'a frame is {{"ack": [ids], "nack": [ids]}}: {error}'
        except ApiError as error:
            address = continued_at(error, self._socket, self._window, "stream")
            code, reason = POLICY, f"{error.code}: {error.reason}"
            if address is not None:
                code, reason = MOVED, address.replace("http", "ws", 1)
        except TimeoutError:
            self._connection.abort()
            return
        if self._socket.application_state is WebSocketState.CONNECTED:  # a write may have failed at the same time
            await self._socket.close(code, reason[:120])

    async def _feed(self) -> None:
        while True:
            for delivery in await self._context.lease(self._window):
                publication, body = content_of(delivery)
                await self._write(
                    StreamMessage(
                        id=delivery.receipt.number,
                        attempt=delivery.receive_count,
                        publication=publication,
                        body=body,
                    )
                )
                if not self._connection.is_lost:
                    self._window.sent([delivery.receipt.number])
                self._context.deliveries[StreamDelivery].delivered[WEBSOCKET] += 1

    async def _listen(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] != "websocket.receive":
                raise WebSocketDisconnect(message.get("code", 1005))
            text, data = message.get("text"), message.get("bytes")
            reply = _decode(text if text is not None else data if data is not None else b"")
            self._context.check(self._principal)
            refused = await self._window.acknowledge(reply.ack)
            await self._window.give_back(reply.nack)
            if reply.ack:
                await self._write(_confirmation(reply.ack, refused))

    async def _write(self, value: object) -> None:
        """Writes, and waits up to `unread_s_max` while the client does not read. Raises if the key was revoked."""
        self._context.check(self._principal)
        async with asyncio.timeout(self._context.limits.unread_s_max):
            await self._socket.send({"type": "websocket.send", "text": _encode(value).decode()})


def _confirmation(numbers: list[int], refused: dict[int, Refused]) -> StreamConfirmation:
    return StreamConfirmation(
        acknowledged=[number for number in numbers if number not in refused],
        refused=refused_entries(refused),
    )
