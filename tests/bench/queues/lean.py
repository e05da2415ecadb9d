"""A lean client of Lavant's own protocol, as `amqp.py` is one of RabbitMQ's: one socket, and frames made once.

A cycle writes a send and a receive together, waits for both answers, and acknowledges; it waits for the answer to that
as well, or reads it in the next cycle where the server does not promise anything with it. Of what comes in, nothing is
decoded but the receipts, which have to go back.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec

from lavant.broker.protocol.frames import GREETING_NUMBER, PREFACE, Hello, decode_request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Acknowledge, CreateQueue, Receive, Send, SendEntry
from lavant.core.frames import HEADER, frame

_READ_BYTES = 256 << 10
_SENT, _RECEIVED, _ACKNOWLEDGED = 1, 2, 3
_encode = msgspec.msgpack.Encoder().encode
_REFUSED = _encode("refused")
"""Behind the byte with which an answer begins."""


class _Delivery(msgspec.Struct, array_like=True, gc=False):
    receipt: msgspec.Raw


class _Received(msgspec.Struct, array_like=True, gc=False):
    tag: str
    deliveries: list[_Delivery]


_decode = msgspec.msgpack.Decoder(_Received).decode


class LeanClient:
    """A connection with a durable queue of its own."""

    def __init__(
        self, port: int, *, queue: str, body: bytes, batch: int, timeout_s: float, waits_for_acknowledgement: bool
    ) -> None:
        self._batch = batch
        self._queue = queue
        self._waits = waits_for_acknowledgement
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._owed = 0
        """Answers to acknowledgements that were not read yet."""
        self._socket.sendall(PREFACE + frame(GREETING_NUMBER, Hello()) + frame(1, CreateQueue(queue, QueueConfig())))
        self._read({GREETING_NUMBER: 1, 1: 1})
        receive = Receive(queue, batch, wait_ms=int(1000 * timeout_s))
        self._send_and_receive = bytes(frame(_SENT, Send(queue, [SendEntry(body)] * batch)) + frame(_RECEIVED, receive))
        self._receive = bytes(frame(_RECEIVED, receive))

    def cycle(self) -> None:
        """Send a batch, receive it, acknowledge it."""
        self._socket.sendall(self._send_and_receive)
        wanted = {_SENT: 1, _RECEIVED: 1}
        if self._owed:
            wanted[_ACKNOWLEDGED], self._owed = self._owed, 0
        left = self._batch
        while True:
            deliveries = _decode(self._read(wanted)[_RECEIVED]).deliveries
            left -= len(deliveries)
            receipts = [delivery.receipt for delivery in deliveries]
            # The bytes of `Acknowledge`, without making one of its values for each receipt.
            self._socket.sendall(_framed(_ACKNOWLEDGED, _encode(["ack", self._queue, receipts])))
            if self._waits:
                self._read({_ACKNOWLEDGED: 1})
            else:
                self._owed += 1
            if not left:
                return
            self._socket.sendall(self._receive)
            wanted = {_RECEIVED: 1}

    def close(self) -> None:
        self._socket.close()

    def _read(self, wanted: dict[int, int]) -> dict[int, memoryview]:
        """Answers by their numbers, so many of each."""
        left = sum(wanted.values())
        answers: dict[int, memoryview] = {}
        data = self._rest
        while left:
            position, size = 0, len(data)
            while size - position >= HEADER.size and left:
                length, number = HEADER.unpack_from(data, position)
                stop = position + 4 + length
                if stop > size:
                    break
                if number not in wanted or data.startswith(_REFUSED, position + HEADER.size + 1):
                    raise RuntimeError(f"Lavant answers {data[position:stop]!r} to request {number}")
                answers[number] = memoryview(data)[position + HEADER.size : stop]
                left -= 1
                position = stop
            data = data[position:]
            if left:
                more = self._socket.recv(_READ_BYTES)
                if not more:
                    raise RuntimeError("Lavant hung up")
                data += more
        self._rest = data
        return answers


def _framed(number: int, content: bytes) -> bytes:
    return HEADER.pack(len(content) + 4, number) + content


def lean_client(
    queue_name: Callable[[], str], body: bytes, timeout_s: float, *, waits_for_acknowledgement: bool
) -> Callable[[int, int], tuple[Callable[[], None], Callable[[], None]]]:
    def connect(port: int, batch: int) -> tuple[Callable[[], None], Callable[[], None]]:
        client = LeanClient(
            port,
            queue=queue_name(),
            body=body,
            batch=batch,
            timeout_s=timeout_s,
            waits_for_acknowledgement=waits_for_acknowledgement,
        )
        return client.cycle, client.close

    return connect


assert decode_request(_encode(["ack", "q", []])) == Acknowledge("q", []), "the wire's format has changed"
