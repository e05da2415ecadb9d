"""The link to the service: fetches work, and reports match results."""

from __future__ import annotations

import socket
from itertools import count

from lavant.broker.protocol.frames import GREETING_NUMBER, PREFACE, Hello
from lavant.broker.protocol.match_protocol import (
    Answer,
    FetchWork,
    MatchResults,
    MatchWork,
    OffsetRange,
    Request,
    decode_answer,
)
from lavant.broker.protocol.queues import Done, Refused
from lavant.core.errors import AccessDenied, ConnectionLost
from lavant.core.frames import Frames, frame

HOST = "127.0.0.1"
CONNECT_S_MAX = 10.0
READ_BYTES = 1 << 20


class ServiceLink:
    """One connection, one request at a time."""

    def __init__(self, port: int, secret: bytes) -> None:
        self._numbers = count(GREETING_NUMBER + 1)
        self._frames = Frames()
        self._socket = socket.create_connection((HOST, port), CONNECT_S_MAX)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(PREFACE + frame(GREETING_NUMBER, Hello(secret)))
        answer = self._answer(GREETING_NUMBER)
        if not isinstance(answer, Done):
            raise AccessDenied(f"the service does not accept this process: {answer}")

    def next(self, hosts: int, fault: str) -> list[OffsetRange]:
        """Offset ranges to match; empty if there were none for a while."""
        answer = self._ask(FetchWork(hosts, fault))
        assert isinstance(answer, MatchWork)
        return answer.ranges

    def report(self, found: MatchResults) -> Refused | None:
        """None if it was delivered."""
        answer = self._ask(found)
        return answer if isinstance(answer, Refused) else None

    def _ask(self, request: Request) -> Answer:
        number = next(self._numbers)
        self._socket.sendall(frame(number, request))
        return self._answer(number)

    def _answer(self, number: int) -> Answer:
        while True:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionLost("the service closed the connection")
            for answered, content in self._frames.feed(data):
                assert answered == number, f"request {number} was sent, {answered} was answered"
                decoded: Answer = decode_answer(content)
                return decoded
