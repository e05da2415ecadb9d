"""Calls of SQS that take the short way between socket and queue: clients cannot tell, whatever they do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.service.wiring import ready

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Received, Send, Sent, SentEntry
from lavant.service.auth.browser_guard import BrowserGuard, HostList
from lavant.service.auth.keys import Principal
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.net.admission import ConnectionAdmission
from lavant.service.net.connections import ClientGone, RequestConnection
from lavant.service.net.http_dispatch import HttpApplication
from lavant.service.net.http_server.connection import HttpProtocols
from lavant.service.net.listener import Listener
from lavant.service.runtime.limits import LIMITS

BODY_BYTES_MAX = 300_000
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HOST, KIND = "Host: queues.test", "Content-Type: application/x-amz-json-1.0"
Connect = Callable[[], Awaitable[Streams]]


class Hub:
    """Takes every message, has none, and knows who waits for one."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.waiting = asyncio.Event()
        self.left = asyncio.Event()

    async def execute(
        self, request: Request, principal: Principal, connection: RequestConnection | None = None
    ) -> Answer:
        if isinstance(request, Send):
            self.bodies += [draft.body for draft in request.entries]
            return Sent([SentEntry(number + 1) for number in range(len(request.entries))])
        if getattr(request, "wait_ms", 0):
            self.waiting.set()
            assert connection is not None
            connection.watch(self.left.set)
            await self.left.wait()
            raise ClientGone
        return Received([])


def serving(scenario: Callable[[Hub, Connect], Awaitable[None]]) -> None:
    """A port with nothing but SQS behind it."""

    async def run() -> None:
        hub = Hub()
        app = SqsApp(hub.execute, SqsSettings(salt=b"salt", body_bytes_max=BODY_BYTES_MAX))
        application = HttpApplication(operations=app, api=app, api_paths=frozenset(), sqs=app, readiness=ready())
        protocols = HttpProtocols(application, app, LIMITS, BrowserGuard(HostList(["queues.test"])))
        listener = Listener(protocols, ConnectionAdmission(connections_max=9, unauthenticated_max=9))
        _, port = await listener.open("127.0.0.1", 0)
        writers: list[asyncio.StreamWriter] = []

        async def connect() -> Streams:
            streams = await asyncio.open_connection("127.0.0.1", port)
            writers.append(streams[1])
            return streams

        try:
            await asyncio.wait_for(scenario(hub, connect), 30)
        finally:
            listener.close()
            for writer in writers:
                writer.close()
            await protocols.stop(0.1)

    asyncio.run(run())


def call(action: str, content: dict[str, Any], *headers: str, line: str = "POST / HTTP/1.1") -> bytes:
    body = json.dumps({"QueueUrl": "/orders", **content}).encode()
    head = [line, HOST, KIND, f"X-Amz-Target: AmazonSQS.{action}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def send(body: str, *headers: str, line: str = "POST / HTTP/1.1") -> bytes:
    return call("SendMessage", {"MessageBody": body}, *headers, line=line)


RECEIVE = call("ReceiveMessage", {"WaitTimeSeconds": 20})


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, json.loads(body) if body else None


def test_one_connection_serves_call_after_call() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        ids = []
        for number in range(3):
            writer.write(send(f"message {number}"))
            status, headers, content = await answer(reader)
            assert (status, headers["content-type"]) == (200, "application/x-amz-json-1.0")
            assert content["MessageId"]
            assert "date" in headers
            ids.append(headers["x-amzn-requestid"])
        assert hub.bodies == [b"message 0", b"message 1", b"message 2"]
        assert len(set(ids)) == 3

    serving(scenario)


def test_both_ways_give_the_same_answer() -> None:
    """A path makes the difference: with it, the call goes through the application."""

    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        answers = []
        for line in ("POST / HTTP/1.1", "POST /000000000000/orders HTTP/1.1"):
            writer.write(send("same", line=line) + call("Nonsense", {}, line=line) + call("SendMessage", {}, line=line))
            for _ in range(3):
                status, headers, content = await answer(reader)
                answers.append((status, headers.keys(), headers["content-type"], content))
        assert answers[:3] == answers[3:]
        assert [status for status, *_ in answers[:3]] == [200, 400, 400]

    serving(scenario)


def test_calls_that_come_before_the_last_was_answered_are_answered_in_order() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"".join(send(f"message {number}") for number in range(20)))
        for _ in range(20):
            assert (await answer(reader))[0] == 200
        assert hub.bodies == [f"message {number}".encode() for number in range(20)]
        writer.write(send("and on"))
        assert (await answer(reader))[0] == 200

    serving(scenario)


def test_a_body_may_come_in_pieces_and_be_large() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        request = send("x" * 200_000)
        for start in range(0, len(request), 30_000):
            writer.write(request[start : start + 30_000])
            await writer.drain()
            await asyncio.sleep(0.001)
        assert (await answer(reader))[0] == 200
        assert hub.bodies == [b"x" * 200_000]

    serving(scenario)


def test_one_that_is_too_large_is_refused_unread() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(send("x" * (BODY_BYTES_MAX + 1))[:1000])
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (413, "close")
        assert not hub.bodies

    serving(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        send("x", "Transfer-Encoding: chunked").replace(b"Content-Length", b"X-Length").partition(b"\r\n\r\n")[0],
        send("x", "Expect: 100-continue"),
        send("x", line="POST / HTTP/1.0"),
        send("x", line="POST /?a=b HTTP/1.1"),
    ],
    ids=["chunked", "expect", "old", "query"],
)
def test_whoever_asks_in_another_way_is_served_as_well(request_: bytes) -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        if b"chunked" in request_:
            body = b'{"QueueUrl": "/orders", "MessageBody": "x"}'
            writer.write(request_ + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        else:
            writer.write(request_)
        if b"Expect" in request_:
            assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        assert (await answer(reader))[0] == 200
        assert hub.bodies == [b"x"]

    serving(scenario)


def test_a_connection_is_closed_if_the_client_wants_so() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(send("last", "Connection: close"))
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (200, "close")
        assert await reader.read() == b""

    serving(scenario)


def test_who_hangs_up_while_waiting_waits_no_longer() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        _, writer = await connect()
        writer.write(RECEIVE)
        await hub.waiting.wait()
        writer.close()
        await hub.left.wait()

    serving(scenario)


def test_what_comes_while_a_receive_waits_is_answered_after_it() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        _, writer = await connect()
        writer.write(RECEIVE + send("later"))
        await hub.waiting.wait()
        await asyncio.sleep(0.05)
        assert not hub.bodies
        other_reader, other = await connect()
        other.write(send("now"))
        assert (await answer(other_reader))[0] == 200
        assert hub.bodies == [b"now"]

    serving(scenario)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda call: call.replace(b"queues.test", b"evil.example"), 421),
        (lambda call: call.replace(b"Host: ", b"Host: evil.example\r\nHost: "), 400),
        (lambda call: call.replace(b"Host: ", b"Origin: http://evil.example\r\nHost: "), 403),
        (lambda call: call.replace(b"Host: ", b"Sec-Fetch-Site: cross-site\r\nHost: "), 403),
    ],
    ids=["rebound name", "two names", "origin", "site"],
)
def test_the_short_way_is_no_way_round_the_guard(change: Callable[[bytes], bytes], status: int) -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        for number in range(2):  # the second takes the short way
            writer.write(send(f"message {number}"))
            assert (await answer(reader))[0] == 200
        writer.write(change(send("evil")))
        assert (await answer(reader))[0] == status
        assert await reader.read() == b""
        assert hub.bodies == [b"message 0", b"message 1"]

    serving(scenario)


def test_a_page_of_others_is_refused_before_its_body_has_come() -> None:
    async def scenario(hub: Hub, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(send("x" * 1000, "Origin: http://evil.example").partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert (await answer(reader))[0] == 403
        assert await reader.read() == b""

    serving(scenario)
