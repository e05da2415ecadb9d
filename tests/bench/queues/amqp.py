"""A lean AMQP 0-9-1 client, so that RabbitMQ is measured and not its client: one socket, and frames made once.

A cycle publishes a batch in one write, waits until the broker has confirmed all of it and delivered all of it (in any
order: it pushes to its consumers), and acknowledges everything with one frame. What comes in is counted, not decoded.

    frame = type (u8) | channel (u16) | length (u32) | payload | 0xCE
    payload of a method = class (u16) | method (u16) | arguments
"""

from __future__ import annotations

import socket
import struct

_HEADER = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_ACKNOWLEDGED = struct.Struct(">QB")
_END = b"\xce"
_METHOD_FRAME, _HEADER_FRAME, _BODY_FRAME = 1, 2, 3
_READ_BYTES = 256 << 10

_START, _START_OK, _TUNE, _TUNE_OK, _OPEN, _OPEN_OK = ((10, method) for method in (10, 11, 30, 31, 40, 41))
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)
_DECLARE, _DECLARE_OK = (50, 10), (50, 11)
_QOS, _QOS_OK, _CONSUME, _CONSUME_OK = ((60, method) for method in (10, 11, 20, 21))
_PUBLISH, _DELIVER, _ACK, _NACK = ((60, method) for method in (40, 60, 80, 120))
_CONFIRM, _CONFIRM_OK = (85, 10), (85, 11)
_DURABLE, _MULTIPLE = 2, 1
_DELIVERY_MODE_GIVEN, _PERSISTENT = 0x1000, 2


class AmqpClient:
    """A connection with a durable queue of its own, which it publishes to and consumes from."""

    def __init__(self, port: int, *, queue: str, body: bytes, batch: int, timeout_s: float) -> None:
        self._batch = batch
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._confirmed = self._delivered = 0
        """The last delivery tags, of the two directions, of which everything before has come as well."""
        self._published = 0
        self._connect()
        self._call(_CHANNEL_OPEN, b"\0", _CHANNEL_OPEN_OK, channel=1)
        self._call(_CONFIRM, b"\0", _CONFIRM_OK, channel=1)
        self._call(_QOS, struct.pack(">IHB", 0, batch, 0), _QOS_OK, channel=1)
        kind = _table({"x-queue-type": "quorum"})
        self._call(_DECLARE, b"\0\0" + _short(queue) + bytes([_DURABLE]) + kind, _DECLARE_OK, channel=1)
        self._call(_CONSUME, b"\0\0" + _short(queue) + b"\0\0" + _table({}), _CONSUME_OK, channel=1)
        self._publications = _publication(queue, body) * batch

    def cycle(self) -> None:
        """Publish a batch, have it confirmed, receive it, acknowledge it."""
        self._published += self._batch
        self._socket.sendall(self._publications)
        while self._confirmed < self._published or self._delivered < self._published:
            self._take_in(self._rest + self._socket.recv(_READ_BYTES))
        acknowledgement = _ACKNOWLEDGED.pack(self._delivered, _MULTIPLE)
        self._socket.sendall(_method(_ACK, acknowledgement, channel=1))

    def close(self) -> None:
        self._socket.close()

    def _take_in(self, data: bytes) -> None:
        """Count confirmations, and messages whose body is here to its end (a body of 1 KB is one frame)."""
        position, size = 0, len(data)
        while size - position >= _HEADER.size:
            kind, _, length = _HEADER.unpack_from(data, position)
            payload = position + _HEADER.size
            if payload + length >= size:
                break
            if kind == _BODY_FRAME:
                self._delivered += 1
            elif kind == _METHOD_FRAME:
                method = _METHOD.unpack_from(data, payload)
                if method == _ACK:
                    self._confirm(*_ACKNOWLEDGED.unpack_from(data, payload + _METHOD.size))
                elif method != _DELIVER:
                    raise RuntimeError(f"RabbitMQ refuses a message, or hangs up: {data[payload : payload + length]!r}")
            position = payload + length + len(_END)
        self._rest = data[position:]

    def _confirm(self, tag: int, multiple: int) -> None:
        """A quorum queue confirms in the order of publishing, alone or many together."""
        if not multiple and tag != self._confirmed + 1:
            raise RuntimeError(f"RabbitMQ confirms {tag} after {self._confirmed}; this client counts on the order")
        self._confirmed = tag

    # ── before the first cycle ────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(_START)
        login = _table({}) + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        limits = self._call(_START_OK, login, _TUNE)
        channels_max, frame_bytes_max, _ = struct.unpack(">HIH", limits)
        no_heartbeat = struct.pack(">HIH", channels_max, frame_bytes_max, 0)
        self._socket.sendall(_method(_TUNE_OK, no_heartbeat))
        self._call(_OPEN, _short("/") + b"\0\0", _OPEN_OK)

    def _call(self, method: tuple[int, int], arguments: bytes, answer: tuple[int, int], channel: int = 0) -> bytes:
        self._socket.sendall(_method(method, arguments, channel=channel))
        return self._expect(answer)

    def _expect(self, method: tuple[int, int]) -> bytes:
        """The arguments of the next frame, which must be this one."""
        while len(self._rest) < _HEADER.size or len(self._rest) < self._frame_bytes():
            self._rest += self._socket.recv(_READ_BYTES)
        end = self._frame_bytes()
        payload, self._rest = self._rest[_HEADER.size : end - len(_END)], self._rest[end:]
        if _METHOD.unpack_from(payload) != method:
            raise RuntimeError(f"RabbitMQ answers {payload!r} where {method} belongs")
        return payload[_METHOD.size :]

    def _frame_bytes(self) -> int:
        length: int = _HEADER.unpack_from(self._rest)[2]
        return _HEADER.size + length + len(_END)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEADER.pack(kind, channel, len(payload)) + payload + _END


def _method(method: tuple[int, int], arguments: bytes, channel: int = 0) -> bytes:
    return _frame(_METHOD_FRAME, channel, _METHOD.pack(*method) + arguments)


def _publication(queue: str, body: bytes) -> bytes:
    """A persistent message through the default exchange."""
    properties = struct.pack(">HHQHB", _PUBLISH[0], 0, len(body), _DELIVERY_MODE_GIVEN, _PERSISTENT)
    publish = _method(_PUBLISH, b"\0\0" + _short("") + _short(queue) + b"\0", channel=1)
    return publish + _frame(_HEADER_FRAME, 1, properties) + _frame(_BODY_FRAME, 1, body)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(texts: dict[str, str]) -> bytes:
    return _long(b"".join(_short(name) + b"S" + _long(text.encode()) for name, text in texts.items()))
