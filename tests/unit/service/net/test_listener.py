"""A listening port: whoever is one too many is closed at once, handshakes count, and a full table of files passes."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.certificates import write_certificate
from tests.unit.service.wiring import until

from lavant.service.auth.tenants import ANYBODY
from lavant.service.net import listener as module
from lavant.service.net.admission import ConnectionAdmission, Ticket
from lavant.service.net.listener import Listener
from lavant.service.net.tls import Tls, TlsFiles


class Echo(asyncio.Protocol):
    """Says what it was told; `k` shows a key."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ticket.hang_up = transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        self._ticket.leave()

    def data_received(self, data: bytes) -> None:
        if data == b"k":
            self._ticket.authenticated(ANYBODY)
        self._transport.write(data)


def listening(
    work: Callable[[int, ConnectionAdmission], Awaitable[None]], tls: Tls | None = None, **limits: int
) -> None:
    async def run() -> None:
        admission = ConnectionAdmission(**{"connections_max": 3, "unauthenticated_max": 3, **limits})
        listener = Listener(Echo, admission, tls)
        _, port = await listener.open("127.0.0.1", 0)
        try:
            await asyncio.wait_for(work(port, admission), 30)
        finally:
            listener.close()
        await until(lambda: len(admission) == 0)

    asyncio.run(run())


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext | None = None) -> Client:
        host = None if context is None else "127.0.0.1"
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host))

    async def says(self, data: bytes) -> bytes:
        try:
            self.writer.write(data)
            return await self._reader.read(100)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.close()


def test_one_too_many_is_closed_at_once_and_there_is_room_again_when_one_leaves() -> None:
    async def work(port: int, admission: ConnectionAdmission) -> None:
        clients = [await Client.connect(port) for _ in range(5)]
        assert [await client.says(b"x") for client in clients] == [b"x", b"x", b"x", b"", b""]
        clients[0].close()
        await until(lambda: len(admission) == 2)
        late = await Client.connect(port)
        assert await late.says(b"y") == b"y"
        for client in (*clients, late):
            client.close()

    listening(work)


def test_the_oldest_stranger_makes_room_for_the_next() -> None:
    async def work(port: int, admission: ConnectionAdmission) -> None:
        known = await Client.connect(port)
        assert await known.says(b"k") == b"k"
        strangers = [await Client.connect(port) for _ in range(2)]
        assert [await client.says(b"x") for client in strangers] == [b"x", b"x"]
        latest = await Client.connect(port)
        assert [await client.says(b"x") for client in (*strangers, latest, known)] == [b"", b"x", b"x", b"x"]
        for client in (known, *strangers, latest):
            client.close()

    listening(work, connections_max=9, unauthenticated_max=2)


def test_clients_that_do_not_speak_tls_are_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(port: int, admission: ConnectionAdmission) -> None:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"LAVANTLINK\n" + bytes(20))
            await reader.read()
            writer.close()
        await until(lambda: bool(caplog.messages))

    listening(work, Tls(TlsFiles(*write_certificate(tmp_path))))
    [line] = caplog.messages
    assert "the TLS handshake with 127.0.0.1 failed: it does not speak TLS" in line


def test_a_handshake_that_does_not_end_counts_and_has_to_go_first(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    context = ssl.create_default_context(cafile=certificate)

    async def work(port: int, admission: ConnectionAdmission) -> None:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        silent[1].sendall(b"\x16\x03\x01")
        await until(lambda: len(admission) == 2)
        clients = [await Client.connect(port, context) for _ in range(2)]
        assert [await client.says(b"k") for client in clients] == [b"k", b"k"]
        for each in silent:
            each.setblocking(False)
            data = await asyncio.get_running_loop().sock_recv(each, 100)
            assert data == b"" or data[:1] == b"\x15", "closed, perhaps with an alert"
            each.close()
        await until(lambda: len(admission) == 2)
        noise = socket.create_connection(("127.0.0.1", port))
        noise.sendall(b"GET / HTTP/1.1\r\n\r\n")
        noise.close()
        assert await clients[0].says(b"x") == b"x"
        for client in clients:
            client.close()

    listening(work, Tls(TlsFiles(certificate, key)), unauthenticated_max=2, connections_max=9)


class Exhausted:
    """A listening socket of a process that has no descriptors left, at first."""

    def __init__(self, real: socket.socket, failures: int) -> None:
        self._real, self.failures, self.calls = real, failures, 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_without_descriptors_nothing_is_accepted_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However long the system refuses, the loop is not kept busy with it."""
    monkeypatch.setattr(module, "REST_S", 0.02)
    made: list[Exhausted] = []
    create = socket.create_server

    def create_server(*arguments: Any, **options: Any) -> Any:
        made.append(Exhausted(create(*arguments, **options), 3))
        return made[0]

    monkeypatch.setattr(socket, "create_server", create_server)

    async def work(port: int, admission: ConnectionAdmission) -> None:
        client = await Client.connect(port)
        assert await client.says(b"x") == b"x"
        client.close()
        assert made[0].calls <= 3 + 2
        assert len(caplog.records) == 3

    with caplog.at_level(logging.WARNING):
        listening(work)


def test_a_host_with_several_addresses_has_one_port() -> None:
    async def run() -> None:
        listener = Listener(Echo, ConnectionAdmission(connections_max=9, unauthenticated_max=9))
        _, port = await listener.open("localhost", 0)
        assert {each.getsockname()[1] for each in listener._sockets} == {port}
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(port)

    asyncio.run(run())


def test_a_port_that_is_taken_is_an_error() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            listener = Listener(Echo, ConnectionAdmission(connections_max=9, unauthenticated_max=9))
            with pytest.raises(OSError, match="in use"):
                await listener.open("127.0.0.1", other.getsockname()[1])

    asyncio.run(run())


def test_the_kernel_asks_connections_that_are_silent_whether_anybody_is_there() -> None:
    """A machine that lost its power says nothing: without this its connections would count for ever."""
    accepted: list[socket.socket] = []

    class Noting(Echo):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            accepted.append(transport.get_extra_info("socket"))

    async def run() -> None:
        listener = Listener(Noting, ConnectionAdmission(connections_max=3, unauthenticated_max=3))
        _, port = await listener.open("127.0.0.1", 0)
        client = await Client.connect(port)
        assert await client.says(b"x") == b"x"
        options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        [connection] = accepted
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        asked = [connection.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        assert asked == [module.SILENT_S, module.PROBE_S, module.PROBES]
        client.close()
        listener.close()

    asyncio.run(run())
