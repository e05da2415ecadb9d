"""Frames on a byte stream: length (u32, big endian, of what follows) | number (u32, big endian) | MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from lavant.core.errors import InvalidValue, LimitExceeded

HEADER = struct.Struct(">II")
FRAME_BYTES_MAX = 48 << 20
"""Enough for the largest batch with its attributes, and for every answer."""

_LENGTH_BYTES = 4
_NUMBER_BYTES = 4

encoder = msgspec.msgpack.Encoder()


def frame(number: int, value: object) -> bytearray:
    """A frame.

    >>> frame(7, []).hex(" ", -4)
    '00000005 00000007 90'
    """
    buffer = bytearray()
    append_frame(buffer, number, value)
    return buffer


def append_frame(buffer: bytearray, number: int, value: object) -> None:
    """Append a frame to a buffer of frames that are sent together. A value that cannot be encoded leaves nothing."""
    start = len(buffer)
    buffer += b"\0\0\0\0\0\0\0\0"
    try:
        encoder.encode_into(value, buffer, -1)
    except BaseException:
        del buffer[start:]
        raise
    HEADER.pack_into(buffer, start, len(buffer) - start - _LENGTH_BYTES, number)


class Frames:
    """Splits a byte stream into frames; keeps at most one unfinished frame.

    >>> frames = Frames()
    >>> stream = bytes(frame(1, []) + frame(2, []))
    >>> [number for number, _ in frames.feed(stream[:12])], [number for number, _ in frames.feed(stream[12:])]
    ([1], [2])
    """

    __slots__ = ("_rest", "_wanted", "bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """Largest frame; may change between two frames."""
        self._rest = bytearray()
        self._wanted = HEADER.size

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields number and content of each complete frame. A malformed frame raises when it is reached."""
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
