"""WebSocket connections: uvicorn's protocol, in which a client's unusual end is no error of the server.

    handshake ──► open ──┬── close, from either end ──► ended
        │                ├── invalid frame or text: 1002, 1007, 1009
        └── 400, 401 …   └── lost

uvicorn takes some of these ends for errors of the server, and logs tracebacks.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import State

from lavant.service.net.connections import STATE as CONNECTION

FRAME_BYTES_MAX = 1 << 20
"""For frames from clients."""
_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.app_state[CONNECTION].ticket.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:  # the handshake came as a whole, so it is invalid
            self._refuse()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.handshake_complete:
            # Frames before the answer to the handshake are read after it; `receive` resumes reading.
            self.read_paused = True
            self.transport.pause_reading()

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # an invalid handshake
            self._refuse()
        else:
            super().handle_parser_exception()

    def _refuse(self) -> None:
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(_BAD_HANDSHAKE)
        self.transport.close()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self.frames = []
            if self.conn.state is State.OPEN:  # not closing because of a later frame
                self.conn.send_close(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        if self.close_sent:  # because of an invalid frame: for the application, the client is gone
            raise ClientDisconnected
        await super().send(message)
        if self.close_sent:  # a plain HTTP answer completes the handshake as well
            self.handshake_complete = True


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
