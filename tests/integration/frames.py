"""Requests to a server as bare frames: for tests that want to see each answer, refusals included."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import count
from typing import Any, Self

from lavant.broker.protocol.frames import PREFACE, Hello, decode_answer
from lavant.broker.protocol.queues import Acknowledge, Receive, Received
from lavant.core.frames import Frames, frame


class FrameClient:
    """One connection; what is asked is waited for."""

    def __init__(self, port: int, key: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._frames = Frames()
        self._numbers = count(1)
        self._socket.sendall(PREFACE + frame(0, Hello(key.encode())))
        self._answer()

    def ask(self, request: object) -> Any:
        self._socket.sendall(frame(next(self._numbers), request))
        return self._answer()

    def ask_all(self, requests: Sequence[object]) -> list[Any]:
        """All at once; the answers in the order of the requests."""
        first = next(self._numbers)
        numbers = range(first, first + len(requests))
        self._numbers = count(numbers.stop)
        self._socket.sendall(b"".join(frame(*each) for each in zip(numbers, requests, strict=True)))
        answers: dict[int, Any] = {}
        while len(answers) < len(requests):
            answers.update((number, decode_answer(content)) for number, content in self._frames.feed(self._read()))
        return [answers[number] for number in numbers]

    def drain(self, queue: str, wait_ms: int = 0) -> list[bytes]:
        """All bodies that are there, received and acknowledged."""
        bodies: list[bytes] = []
        while True:
            received = self.ask(Receive(queue, 1000, wait_ms=wait_ms))
            assert isinstance(received, Received), received
            if not received.deliveries:
                return bodies
            bodies += [delivery.body for delivery in received.deliveries]
            self.ask(Acknowledge(queue, [delivery.receipt for delivery in received.deliveries]))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> Any:
        while True:
            for _, content in self._frames.feed(self._read()):
                return decode_answer(content)

    def _read(self) -> bytes:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server hung up")
        return data
