"""The real front ends behind a real port of this process, for clients that say what they like."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.service.front_ends import HOST, FrontEnds, credential, key
from tests.unit.service.wiring import ready

from lavant.broker.protocol.frames import PREFACE
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue
from lavant.service.auth.browser_guard import BrowserGuard, HostList
from lavant.service.net.admission import ConnectionAdmission, Ticket
from lavant.service.net.http_server import connection as http_connections
from lavant.service.net.http_server.connection import HttpProtocols
from lavant.service.net.listener import Listener
from lavant.service.net.native import NativeProtocol
from lavant.service.net.protocol_detection import DetectingProtocol
from lavant.service.observability.logs import RepeatedFault
from lavant.service.runtime.limits import LIMITS

KEY, CREDENTIAL = "till", "clerk"


class Served:
    """A front end, its port, and who is connected there."""

    def __init__(self, front: FrontEnds, port: int, admission: ConnectionAdmission) -> None:
        self.front, self.port, self.admission = front, port, admission
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.clients[-1]

    async def answers(self) -> bool:
        """Whether it still does what it is there for."""
        return await (await self.connect()).status(b"GET /healthz HTTP/1.1\r\nHost: queues.test\r\n\r\n") == 200


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def status(self, data: bytes = b"") -> int:
        """Of the next answer, which is read with its body; 0 if the connection ended."""
        try:
            self.writer.write(data)
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if length:
                await self.reader.readexactly(int(length))
        except (ConnectionError, asyncio.IncompleteReadError):
            return 0
        return int(head.split()[1])

    async def trickle(self, data: bytes, pause_s: float = 0.01) -> bytes:
        """Repeat that until the connection ends; what the server said meanwhile."""
        reading = asyncio.ensure_future(self.reader.read(-1))
        while not reading.done():
            self.writer.write(data)
            await asyncio.wait([reading], timeout=pause_s)
        try:
            return reading.result()
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.transport.abort()


def serving(
    directory: Path, work: Callable[[Served], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, **limits: Any
) -> None:
    """With the queue `q`, a key and a credential for everything, and looking for who is late very often."""
    monkeypatch.setattr(http_connections, "CHECK_S", 0.01)
    bounds = replace(LIMITS, **limits)

    async def run() -> None:
        scopes = ("publish", "subscribe", "admin")
        front = FrontEnds(directory, [key(KEY, *scopes)], [credential(CREDENTIAL, *scopes)], bounds)
        await front.native(KEY, CreateQueue("q", QueueConfig()))
        http = HttpProtocols(front.application, front.sqs_app, bounds, BrowserGuard(HostList([HOST])))
        admission = ConnectionAdmission(connections_max=100, unauthenticated_max=100)

        def compact(ticket: Ticket) -> asyncio.Protocol:
            return NativeProtocol(front.service, front.keys, ready(), ticket)

        listener = Listener(
            partial(DetectingProtocol, {PREFACE: compact}, http, bounds.greeting_s_max, RepeatedFault()), admission
        )
        _, port = await listener.open("127.0.0.1", 0)
        served = Served(front, port, admission)
        try:
            await asyncio.wait_for(work(served), 20)
            assert await served.answers()
            assert front.wiring.failures == []
        finally:
            for client in served.clients:
                client.close()
            listener.close()
            await http.stop(0.1)
            await asyncio.sleep(0)

    asyncio.run(run())
