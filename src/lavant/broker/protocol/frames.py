"""The compact protocol on a byte stream: the preface, frames, and the greeting.

    client                                         server
      │  LAVANT1\\n  frame(0, Hello)                  │      the preface tells this protocol from HTTP on the same port
      │ ───────────────────────────────────────────► │
      │                              frame(0, Done)  │      or frame(0, Refused), and the server hangs up
      │ ◄─────────────────────────────────────────── │
      │  frame(1, Send)  frame(2, Receive)  …        │      as many as wanted without waiting for an answer
      │ ───────────────────────────────────────────► │
      │             frame(2, Received)  frame(1, …)  │      in any order; the number says what is answered
      │ ◄─────────────────────────────────────────── │

    frame = length (u32, big endian, of what follows) | request number (u32, big endian) | MessagePack

The server speaks unasked only once, under number `FAULT_NUMBER`: to say why it hangs up.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.registry import ANSWERS, REGISTRY
from lavant.core.errors import InvalidValue, LimitExceeded

PREFACE = b"LAVANT1\n"
HEADER = struct.Struct(">II")
FRAME_BYTES_MAX = 48 << 20
"""Holds the largest batch with its attributes, and every answer."""
GREETING_NUMBER = 0
FAULT_NUMBER = 0xFFFF_FFFF
NUMBER_MAX = FAULT_NUMBER - 1

_LENGTH_BYTES = 4
_NUMBER_BYTES = 4


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first frame of a client, under number 0."""

    token: bytes = b""
    """The secret that client and server share, if the server wants one."""


encoder = msgspec.msgpack.Encoder()
_request: Any = reduce(or_, REGISTRY)
_answer: Any = reduce(or_, ANSWERS)
decode_request: Callable[[bytes | memoryview], Request] = msgspec.msgpack.Decoder(_request).decode
decode_answer: Callable[[bytes | memoryview], Answer] = msgspec.msgpack.Decoder(_answer).decode
decode_hello = msgspec.msgpack.Decoder(Hello).decode


def frame(number: int, value: object) -> bytearray:
    """One frame.

    >>> frame(7, Hello()).hex(" ", -4)
    '0000000d 00000007 92a56865 6c6c6fc4 00'
    """
    buffer = bytearray()
    append_frame(buffer, number, value)
    return buffer


def append_frame(buffer: bytearray, number: int, value: object) -> None:
    """Add a frame to those that leave together."""
    start = len(buffer)
    buffer += b"\0\0\0\0\0\0\0\0"
    encoder.encode_into(value, buffer, -1)
    HEADER.pack_into(buffer, start, len(buffer) - start - _LENGTH_BYTES, number)


class Frames:
    """Cuts what comes in, in whatever pieces, into frames; at most one unfinished frame is kept.

    >>> frames = Frames()
    >>> stream = bytes(frame(1, Hello()) + frame(2, Hello()))
    >>> [number for number, _ in frames.feed(stream[:20])], [number for number, _ in frames.feed(stream[20:])]
    ([1], [2])
    """

    __slots__ = ("_rest", "_wanted", "bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """Of a frame. It may change between two frames."""
        self._rest = bytearray()
        self._wanted = HEADER.size

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that are whole now: number and content. A bad one raises when its turn comes."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
            self._rest = bytearray()
        position, end = 0, len(data)
        self._wanted = HEADER.size
        while end - position >= HEADER.size:
            length, number = HEADER.unpack_from(data, position)
            if not _NUMBER_BYTES < length <= self.bytes_max:
                raise self._fault(length)
            stop = position + _LENGTH_BYTES + length
            if stop > end:
                self._wanted = stop - position
                break
            yield number, data[position + HEADER.size : stop]
            position = stop
        if position < end:
            self._rest += memoryview(data)[position:]

    def _fault(self, length: int) -> InvalidValue:
        if length > self.bytes_max:
            return LimitExceeded(
                f"a frame says that {length} bytes follow, at most {self.bytes_max} are allowed; send smaller batches"
            )
        return InvalidValue(
            f"a frame says that {length} bytes follow, but its number and content have at least 5; "
            "is this a client of another protocol?"
        )
