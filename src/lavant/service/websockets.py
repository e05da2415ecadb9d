"""A connection that speaks WebSocket."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from lavant.service.connections import STATE as CONNECTION

FRAME_BYTES_MAX = 1 << 20
"""Of what clients send over a WebSocket."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's own takes an answer in place of a WebSocket for a mistake, and says so in the log."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.app_state[CONNECTION].ticket.leave()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True
