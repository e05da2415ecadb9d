"""A listening port: accepts connections within the limits of admission, with TLS if configured.

It does not use `loop.create_server`, because a connection must count before its TLS handshake, and because running out
of descriptors must neither stop the server nor keep it busy.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from lavant.service.net.admission import ConnectionAdmission, Ticket
from lavant.service.net.tls import HANDSHAKE_S_MAX, Tls
from lavant.service.observability.logs import RepeatedFault

BACKLOG = 1024
ACCEPTS_A_TURN = 64
"""Connections accepted at once, before the event loop goes on."""
REST_S = 1.0
"""Pause after the system refused to accept, as it does without free descriptors."""
SILENT_S, PROBE_S, PROBES = 60, 15, 4
"""TCP keepalive: idle seconds before the first probe, seconds between probes, and probes before it counts as dead."""
PLAIN = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of a client that does not speak TLS."""

_logger = logging.getLogger(__name__)


class Listener:
    """Creates a protocol for each admitted connection; the protocol releases the ticket when the connection is gone."""

    def __init__(
        self, protocol: Callable[[Ticket], asyncio.Protocol], admission: ConnectionAdmission, tls: Tls | None = None
    ) -> None:
        self._protocol = protocol
        self._admission = admission
        self._tls = tls
        self._handshakes = RepeatedFault()
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen at all addresses of the host and return the first. Raises `OSError`."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in dict.fromkeys(found):
            try:
                # Port 0 takes any free port for the first address, and the same one for the others.
                listening = socket.create_server((address[0], port), family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and self._sockets:  # as ::1 is where there is no IPv6
                    continue
                self.close()
                raise
            listening.setblocking(False)
            _probe_silent(listening)
            self._sockets.append(listening)
            port = listening.getsockname()[1]
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        host, number = self._sockets[0].getsockname()[:2]
        return host, number

    def close(self) -> None:
        """Stop accepting."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in self._connecting:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listening, error)
                return
            ticket = self._admission.admit()
            if ticket is None:
                accepted.close()
            else:
                task = self._loop.create_task(self._connect(accepted, str(address[0]), ticket))
                ticket.hang_up = task.cancel
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket, host: str, ticket: Ticket) -> None:
        try:
            accepted.setblocking(False)
            await self._loop.connect_accepted_socket(
                partial(self._protocol, ticket),
                accepted,
                ssl=None if self._tls is None else self._tls.context,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S_MAX,
            )
        except OSError as error:  # the handshake failed or timed out, or the client is gone already
            if isinstance(error, ssl.SSLError):
                self._tell_handshake(host, error)
            accepted.close()
            ticket.leave()
        except asyncio.CancelledError:
            accepted.close()
            ticket.leave()
            raise

    def _tell_handshake(self, host: str, error: ssl.SSLError) -> None:
        """A client that tries again and again gets no line each time."""
        failed = self._handshakes.add()
        if failed is not None:
            reason = str(error.reason or error)
            text = "the TLS handshake with %s failed: %s; %d since the last line"
            _logger.warning(text, host, f"it does not speak TLS ({reason})" if reason in PLAIN else reason, failed)

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        _logger.warning("cannot accept connections, trying again in %g s: %s", REST_S, error.strerror)
        self._loop.remove_reader(listening)
        self._loop.call_later(REST_S, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)


def _probe_silent(listening: socket.socket) -> None:
    """Turn on keepalive for all accepted connections: a machine that lost its power does not close them."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", SILENT_S), ("TCP_KEEPINTVL", PROBE_S), ("TCP_KEEPCNT", PROBES)):
        if hasattr(socket, option):  # elsewhere the system's defaults apply
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
