"""Protocol detection: the first bytes of a connection tell the native protocol, links of brokers, and HTTP apart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from lavant.service.net.admission import Ticket
from lavant.service.observability.logs import RepeatedFault

TLS_HANDSHAKE = b"\x16\x03"
"""How TLS begins."""
PLAIN_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""By which a client of TLS sees that the server does not speak it."""

Factory: TypeAlias = Callable[[Ticket], asyncio.Protocol]

_logger = logging.getLogger(__name__)


class DetectingProtocol(asyncio.Protocol):
    """Reads the first bytes and switches protocols: to that of the preface, or to HTTP without one.

    `handshakes` counts those that a port without TLS refuses; the connections of the port share it.
    """

    def __init__(
        self,
        prefaces: Mapping[bytes, Factory],
        http: Factory,
        seconds_max: float,
        handshakes: RepeatedFault,
        ticket: Ticket,
    ) -> None:
        self._ticket = ticket
        self._handshakes = handshakes
        self._prefaces = prefaces
        self._http = http
        self._seconds_max = seconds_max
        self._data = b""
        self._timer: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ticket.hang_up = self._transport.abort
        self._timer = asyncio.get_running_loop().call_later(self._seconds_max, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._ticket.leave()

    def data_received(self, data: bytes) -> None:
        self._data += data
        for preface, factory in self._prefaces.items():
            if self._data.startswith(preface):
                self._switch(factory(self._ticket), self._data[len(preface) :])
                return
        if self._data.startswith(TLS_HANDSHAKE):
            self._refuse_tls()
        elif not any(preface.startswith(self._data) for preface in self._prefaces):
            self._switch(self._http(self._ticket), self._data)

    def _refuse_tls(self) -> None:
        """A client that tries TLS again and again gets no line each time."""
        refused = self._handshakes.add()
        if refused is not None:
            text = "%s speaks TLS, which this server does not: give it --tls-certificate; %d since the last line"
            _logger.warning(text, host_of(self._transport), refused)
        self._transport.write(PLAIN_ANSWER)
        self._transport.close()

    def _switch(self, protocol: asyncio.Protocol, data: bytes) -> None:
        self._timer.cancel()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if data:
            protocol.data_received(data)


def host_of(transport: asyncio.BaseTransport) -> str:
    """The machine of a client, for the log."""
    at = transport.get_extra_info("peername")
    return str(at[0]) if at else "a client that is gone"
