"""Frames over a plain socket, for the blocking client: no thread, no event loop."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct

from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.frames import FAULT_NUMBER, GREETING_NUMBER, PREFACE, Hello, decode_answer
from lavant.broker.protocol.queues import Refused
from lavant.client.connection.errors import error_of
from lavant.client.connection.settings import ConnectionSettings
from lavant.core.errors import UNDECODABLE, ConnectionLost
from lavant.core.frames import FRAME_BYTES_MAX, HEADER, frame

READ_BYTES = 64 << 10
_LENGTH_BYTES = 4
_TIMEVAL = struct.Struct("@ll")


class Channel:
    """Writes and reads frames. After any error, it must be closed."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._address = settings.address
        try:
            self._socket = _connected(settings)
        except OSError as error:
            raise settings.nobody_answers(error) from None
        self._socket.settimeout(None)  # the kernel's timeouts: Python's cost one more call for each read and write
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._timeout_s = 0.0
        self._rest = b""
        self.wait_up_to(settings.timeout_s)
        try:
            self._greet(settings.token)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def is_quiet(self) -> bool:
        """Whether nothing arrived between requests. If something did, the server has closed the connection."""
        return not self._readable.poll(0)

    def write(self, data: bytes | bytearray) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._broken(error) from None

    def wait_up_to(self, seconds: float) -> None:
        """Sets how long the server may be silent."""
        if seconds != self._timeout_s:
            interval = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)
            self._timeout_s = seconds

    def read(self) -> tuple[int, Answer]:
        """Reads the next answer, with the number of its request."""
        data = self._rest
        while len(data) < HEADER.size:
            data += self._some()
        length, number = HEADER.unpack_from(data)
        stop = _LENGTH_BYTES + length
        if length > FRAME_BYTES_MAX:
            raise ConnectionLost(f"{self._address} sent a frame of {length} bytes; is it a Lavant server?")
        if len(data) < stop:
            data = self._fill(data, stop)
        self._rest = data[stop:]
        try:
            answer = decode_answer(memoryview(data)[HEADER.size : stop])
        except UNDECODABLE as error:
            raise ConnectionLost(
                f"{self._address} sent an invalid answer: {error}; is it a Lavant server of this version?"
            ) from None
        if number == FAULT_NUMBER and isinstance(answer, Refused):
            raise error_of(answer)
        return number, answer

    def _fill(self, data: bytes, size: int) -> bytes:
        parts, missing = [data], size - len(data)
        while missing > 0:
            parts.append(self._some())
            missing -= len(parts[-1])
        return b"".join(parts)

    def _some(self) -> bytes:
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise self._broken(error) from None
        if not data:
            raise self._broken("the server closed it")
        return data

    def _greet(self, token: bytes) -> None:
        with contextlib.suppress(ConnectionLost):  # the server may have said why it closes: read that first
            self.write(PREFACE + frame(GREETING_NUMBER, Hello(token)))
        answer = self.read()[1]
        if isinstance(answer, Refused):
            raise error_of(answer)

    def _broken(self, reason: object) -> ConnectionLost:
        is_silent = isinstance(reason, BlockingIOError | ssl.SSLWantReadError)
        said = f"it was silent for {self._timeout_s:g} s" if is_silent else reason
        return ConnectionLost(
            f"the connection to {self._address} broke: {said}; requests may or may not have been carried out"
        )


def _connected(settings: ConnectionSettings) -> socket.socket:
    address = settings.address
    plain = socket.create_connection((address.host, address.port), settings.timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if settings.tls is None:
        return plain
    try:
        return settings.tls.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise
