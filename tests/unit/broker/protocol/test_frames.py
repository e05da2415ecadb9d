"""Frames: whatever the pieces in which they come, they come out whole, and bad ones are refused."""

from __future__ import annotations

import struct

import pytest

from lavant.broker.protocol.frames import Hello, decode_answer, decode_hello, decode_request
from lavant.broker.protocol.queues import Acknowledged, Open, Receive, Refused, Send, SendEntry
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.frames import HEADER, Frames, frame


def test_frames_come_out_whole_in_whatever_pieces_they_come() -> None:
    stream = bytes(b"".join(frame(number, Hello(b"x" * number)) for number in range(40)))
    for size in (1, 3, 8, 11, 100, len(stream)):
        frames = Frames()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        came = [found for piece in pieces for found in frames.feed(piece)]
        assert [(number, decode_hello(content).token) for number, content in came] == [
            (number, b"x" * number) for number in range(40)
        ]


def test_a_frame_is_length_number_and_content() -> None:
    data = frame(7, Receive("q"))
    length, number = HEADER.unpack_from(data)
    assert (length, number) == (len(data) - 4, 7)
    assert decode_request(bytes(data[8:])) == Receive("q")


@pytest.mark.parametrize("length", [0, 1, 4])
def test_a_frame_without_content_is_refused(length: int) -> None:
    with pytest.raises(InvalidValue, match=f"{length} bytes follow"):
        list(Frames().feed(struct.pack(">II", length, 1) + b"more"))


def test_a_frame_that_is_too_large_is_refused_by_its_header_alone() -> None:
    with pytest.raises(LimitExceeded, match="1001 bytes follow, at most 1000"):
        list(Frames(1000).feed(struct.pack(">II", 1001, 1)))


def test_the_largest_frame_is_accepted() -> None:
    [(number, content)] = Frames(1000).feed(struct.pack(">II", 1000, 1) + bytes(996))
    assert (number, len(content)) == (1, 996)


def test_frames_before_a_bad_one_count() -> None:
    feeding = Frames().feed(bytes(frame(1, Hello())) + struct.pack(">II", 0, 2))
    assert next(feeding)[0] == 1
    with pytest.raises(InvalidValue):
        next(feeding)


@pytest.mark.parametrize(
    "request_", [Open(3), Send("q", [SendEntry(b"\x00", b"a", 5, "g", "d")]), Receive("q", 10, 0, 20)]
)
def test_requests_survive_the_wire(request_: object) -> None:
    [(_, content)] = Frames().feed(bytes(frame(1, request_)))
    assert decode_request(content) == request_


def test_answers_survive_the_wire() -> None:
    answer = Acknowledged({3: Refused("StaleReceipt", "late")})
    [(_, content)] = Frames().feed(bytes(frame(1, answer)))
    assert decode_answer(content) == answer
