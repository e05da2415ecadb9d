"""Requests and replies over a real server, with both clients."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.integration.serving import Served

from lavant import Client, QueueMessage, connect, connect_async
from lavant.core.errors import InvalidValue, NoReply


def doubling(client: Client, message: QueueMessage) -> None:
    client.reply(message, str(2 * int(message.text())))


def test_each_request_gets_its_own_reply(brisk: Served) -> None:
    with connect(brisk.url) as client, connect(brisk.url) as server:
        queue = server.create_queue("doubles")
        queue.consume(lambda message: doubling(server, message), workers=2)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda n: client.request("doubles", str(n)).text(), range(20)))
        assert found == [str(2 * n) for n in range(20)]

        async def ask() -> list[str]:
            async with await connect_async(brisk.url) as asking:
                replies = await asyncio.gather(*(asking.request("doubles", str(n)) for n in range(20)))
                return [each.text() for each in replies]

        assert asyncio.run(ask()) == found
        queue.delete()


def test_silence_is_an_error_and_a_plain_message_has_no_reply(brisk: Served) -> None:
    with connect(brisk.url) as client:
        queue = client.create_queue("silent")
        with pytest.raises(NoReply, match="no reply came from queue 'silent'"):
            client.request("silent", "anybody?", timeout_s=0.2)
        queue.purge()
        queue.send("plain")
        with queue.consume() as consumer:
            [message] = consumer.messages(count=1, timeout_s=20)
            with pytest.raises(InvalidValue, match="asks for no reply"):
                client.reply(message, "well")
        queue.delete()
