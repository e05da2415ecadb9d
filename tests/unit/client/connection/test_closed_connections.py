"""A connection that is closed opens none any more: not one that was on its way, nor one to another broker."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lavant.broker.protocol.frames import GREETING_NUMBER
from lavant.broker.protocol.queues import Done
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.connection import Connection
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.queue_calls import describe
from lavant.core.addresses import Address
from lavant.core.errors import ConnectionLost
from lavant.core.frames import frame

ELSEWHERE = Address.parse("lavant://127.0.0.1:1")


def settings_of(port: int) -> ConnectionSettings:
    url = f"lavant://127.0.0.1:{port}"
    return ConnectionSettings.of(url, key="", ca_file=None, timeout_s=60, retries=NO_RETRIES)


def test_a_connection_that_is_closed_while_it_connects_does_not_stay_open() -> None:
    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            connection = AsyncConnection(settings_of(listener.getsockname()[1]))
            asking = asyncio.create_task(connection.run(describe("q")))
            peer, _ = await asyncio.get_running_loop().sock_accept(listener)
            with peer:
                await connection.close()
                await asyncio.get_running_loop().sock_sendall(peer, frame(GREETING_NUMBER, Done()))
                with pytest.raises(ConnectionLost, match="was closed"):
                    await asking
                while await asyncio.get_running_loop().sock_recv(peer, 1 << 16):
                    pass  # until the other side has closed

    asyncio.run(check())


def test_a_closed_connection_goes_to_no_other_broker() -> None:
    blocking = Connection(settings_of(2))
    blocking.close()
    with pytest.raises(ConnectionLost, match="was closed"):
        blocking._at(ELSEWHERE)

    async def check() -> None:
        connection = AsyncConnection(settings_of(2))
        await connection.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            connection._at(ELSEWHERE)

    asyncio.run(check())
