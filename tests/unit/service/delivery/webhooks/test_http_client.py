"""The small HTTP client, against receivers that answer in all the ways that there are."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from lavant.service.delivery.webhooks import http_client as posting
from lavant.service.delivery.webhooks.addresses import WebhookFault, is_public, resolve
from lavant.service.delivery.webhooks.http_client import Idle, Posted, WebhookClient

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def receiver(serve: Serve) -> AsyncIterator[tuple[str, list[int]]]:
    """Its address, and a list that grows with each connection."""
    connections: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", connections


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def saying(*answers: bytes) -> Serve:
    """One after the other on each connection, then the connection ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()

    return serve


def poster(url: str, answer_bytes_max: int = 1000, idle: Idle | None = None) -> WebhookClient:
    kept = Idle(8) if idle is None else idle
    return WebhookClient(
        url, kept, to_private=True, context=ssl.create_default_context(), answer_bytes_max=answer_bytes_max
    )


def post(serve: Serve, times: int = 1, timeout_s: float = 5.0) -> tuple[list[Posted | WebhookFault], int]:
    """What came back each time, and how many connections it took."""

    async def work() -> tuple[list[Posted | WebhookFault], int]:
        results: list[Posted | WebhookFault] = []
        async with receiver(serve) as (url, connections):
            client = poster(url)
            for _ in range(times):
                try:
                    results.append(await client.post({"X": "y"}, b"body", timeout_s))
                except WebhookFault as fault:
                    results.append(fault)
            client.close_idle()
            return results, len(connections)

    return asyncio.run(work())


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_the_request_is_what_it_should_be() -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)

    assert post(serve)[0] == [Posted(200)]
    head, _, body = requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (lines[0], body) == (b"POST /hook HTTP/1.1", b"body")
    assert lines[1].startswith(b"Host: 127.0.0.1:")
    assert set(lines[2:]) == {b"Content-Length: 4", b"X: y"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (OK, 200),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", 302),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 5000, 500),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut", 200),
    ],
)
def test_answers_of_all_kinds_are_understood(answer: bytes, status: int) -> None:
    assert post(saying(answer))[0] == [Posted(status)]


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n"]
)
def test_no_answer_is_no_success(answer: bytes) -> None:
    [result] = post(saying(answer))[0]
    assert isinstance(result, WebhookFault) or not result.is_success


def test_a_head_without_end_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Y: " + b"z" * 1000 + b"\r\n")
            await writer.drain()

    [result] = post(serve)[0]
    assert isinstance(result, WebhookFault)


def test_a_receiver_that_says_nothing_is_not_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()

    [result] = post(serve, timeout_s=0.1)[0]
    assert isinstance(result, WebhookFault)
    assert "0.1 s" in str(result)


def test_a_connection_is_used_again_as_long_as_both_sides_like() -> None:
    assert post(saying(OK, OK, OK), times=3) == ([Posted(200)] * 3, 1)


def test_a_connection_that_was_closed_meanwhile_is_replaced_and_nobody_notices() -> None:
    assert post(saying(OK), times=3) == ([Posted(200)] * 3, 3)


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "IDLE_S_MAX", -1.0)
    assert post(saying(OK, OK, OK), times=3) == ([Posted(200)] * 3, 3)


def test_a_connection_that_is_to_be_closed_is_closed() -> None:
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert post(saying(closing, OK), times=2) == ([Posted(200)] * 2, 2)


def test_seconds_to_wait_are_read() -> None:
    answer = b"HTTP/1.1 429 Slow\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"
    assert post(saying(answer))[0] == [Posted(429, 30.0)]


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a:99999/", "http://a:0/", "http://bücher.example/"])
def test_addresses_that_nobody_can_call_are_refused_at_once(url: str) -> None:
    with pytest.raises(WebhookFault):
        poster(url)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a00:1::"),
    ],
)
def test_networks_of_ones_own_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f::1", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"])
def test_others_are(address: str) -> None:
    assert is_public(address)


def test_a_name_that_leads_home_is_refused_unless_allowed() -> None:
    async def work() -> None:
        with pytest.raises(WebhookFault, match="--webhooks-to-private-networks"):
            await resolve("localhost", 80, to_private=False)
        assert await resolve("localhost", 80, to_private=True)
        with pytest.raises(WebhookFault, match=r"0x7f\.1"):
            await resolve("0x7f.1", 80, to_private=False)
        with pytest.raises(WebhookFault, match="resolved"):
            await resolve("no-such-name.invalid", 80, to_private=True)

    asyncio.run(work())


def test_few_connections_are_kept_however_many_webhooks_there_are() -> None:
    async def work() -> None:
        idle = Idle(2)
        async with receiver(saying(OK, OK)) as (url, connections):
            clients = [poster(url, idle=idle) for _ in range(5)]
            for client in clients:
                assert await client.post({}, b"", 5.0) == Posted(200)
            assert [len(client._idle) for client in clients] == [0, 0, 0, 1, 1]
            assert await clients[4].post({}, b"", 5.0) == Posted(200)
            assert await clients[0].post({}, b"", 5.0) == Posted(200)
            assert len(connections) == 6, "only that of the last was kept for the next request"
            for client in clients:
                client.close_idle()
            assert not idle._lists

    asyncio.run(work())


def test_a_connection_that_was_reset_while_it_was_kept_is_not_used_again() -> None:
    """On the server's own kind of loop, where writing to a closed transport raises."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(0.02)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def work() -> None:
        async with receiver(serve) as (url, connections):
            client = poster(url)
            for _ in range(2):
                assert await client.post({}, b"", 5.0) == Posted(200)
                await asyncio.sleep(0.1)
            assert len(connections) == 2
            client.close_idle()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
