"""Connections that speak HTTP: what has to arrive in time, how much of it, and what is read for whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.front_ends import FrontEnds
from tests.unit.service.http_serving import CREDENTIAL, KEY, Served, serving
from tests.unit.service.wiring import until

from lavant.broker.protocol.queues import Receive, Received, Send, SendEntry
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.service.delivery.stream import StreamDelivery

QUICK = {"head_s_max": 0.1, "body_s_max": 0.1, "unread_s_max": 0.1, "stop_s_max": 0.1}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: queues.test\r\n\r\n"


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: queues.test", *headers, "", ""]).encode()


def authorized(line: str, *headers: str) -> bytes:
    return head(line, f"Authorization: Bearer {KEY}", "Content-Type: application/json", *headers)


def signed(front: FrontEnds, action: str, body: bytes, *headers: str, name: str = CREDENTIAL) -> bytes:
    """The head of a call of SQS; the body is what it is signed for."""
    given = front.sqs_headers(name, action, body)
    lines = [f"{name}: {value}" for name, value in given.items() if name.lower() != "host"]
    return head("POST / HTTP/1.1", *lines, *headers)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

CHUNKED = "Transfer-Encoding: chunked"
LATE = {
    "nothing": (b"", b""),
    "the preface of the other protocol": (b"", b"L"),
    "half a head": (b"GET /healthz HTTP/1.1\r\nHo", b""),
    "a head that goes on and on": (b"GET /healthz HTTP/1.1\r\n", b"X: y\r\n"),
    "empty lines after a request": (HEALTH, b"\r\n"),
    "half a body": (authorized("POST /publish HTTP/1.1", "Content-Length: 1000"), b""),
    "a body that trickles": (authorized("POST /publish HTTP/1.1", "Content-Length: 100000"), b"x"),
    "half a body in chunks": (authorized("POST /publish HTTP/1.1", CHUNKED) + b"5\r\nab", b""),
    "a body in chunks that trickle": (authorized("POST /publish HTTP/1.1", CHUNKED), b"1\r\nx\r\n"),
    "trailers that trickle": (authorized("POST /publish HTTP/1.1", CHUNKED) + b"1\r\n{\r\n0\r\n", b"A: b\r\n"),
    "a body that nobody reads": (head("POST /publish HTTP/1.1", "Content-Length: 100000"), b"x"),
    "a body of a GET": (head("GET /healthz HTTP/1.1", "Content-Length: 100000"), b"x"),
}


@pytest.mark.parametrize("case", LATE, ids=str)
def test_what_does_not_come_to_its_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    start, more = LATE[case]

    async def work(served: Served) -> None:
        client = await served.connect()
        client.writer.write(start)
        said = await client.trickle(more)
        if b"publish" in start and KEY.encode() in start:
            assert said.startswith(b"HTTP/1.1 408"), said
            assert b"TooSlow" in said
        await until(lambda: len(served.admission) == 0)

    serving(tmp_path, work, monkeypatch, greeting_s_max=0.1, **QUICK)


@pytest.mark.parametrize("way", ["short", "long", "chunked"])
def test_half_a_call_of_sqs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    async def work(served: Served) -> None:
        more = {"short": [], "long": ["Expect: x"], "chunked": [CHUNKED]}[way]
        length = [] if way == "chunked" else ["Content-Length: 5000"]
        client = await served.connect()
        client.writer.write(signed(served.front, "ListQueues", b"{}", *length, *more))
        client.writer.write(b"2\r\n{}\r\n" if way == "chunked" else b"{")
        assert (await client.trickle(b"")).startswith(b"HTTP/1.1 408")
        await until(lambda: len(served.admission) == 0)
        bytes_max = served.front.service.limits.unverified_bytes_max
        await until(lambda: served.front.sqs_app._unverified.left_bytes == bytes_max)

    serving(tmp_path, work, monkeypatch, **QUICK)


def test_a_request_behind_one_that_takes_long_is_not_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not read it meanwhile: that is not its client's fault."""

    async def work(served: Served) -> None:
        front = served.front
        poll = b'{"QueueUrl": "q", "WaitTimeSeconds": 20}'
        send = b'{"QueueUrl": "q", "MessageBody": "two"}'
        client = await served.connect()
        client.writer.write(signed(front, "ReceiveMessage", poll, f"Content-Length: {len(poll)}") + poll)
        client.writer.write(signed(front, "SendMessage", send, f"Content-Length: {len(send)}") + send[:5])
        await until(lambda: front.service.waiting_total == 1)
        await asyncio.sleep(0.4)
        await front.native(KEY, Send("q", [SendEntry(b"one")]))
        assert await client.status() == 200
        assert await client.status(send[5:]) == 200
        client.close()

    serving(tmp_path, work, monkeypatch, **QUICK)


def test_who_does_not_read_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(served: Served) -> None:
        client = await served.connect()
        client.reader._limit = 1  # type: ignore[attr-defined]  # so that its buffer stops reading at once
        client.writer.write(head("GET /openapi.json HTTP/1.1") * 500)
        await until(lambda: len(served.admission) == 0)
        client.close()

    serving(tmp_path, work, monkeypatch, **QUICK)


def test_a_stream_with_another_request_behind_it_ends_with_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(served: Served) -> None:
        await served.front.native(KEY, Subscribe("a = 1", "s"))
        client = await served.connect()
        stream = authorized("GET /subscriptions/s/events HTTP/1.1", "Accept: text/event-stream")
        assert await client.status(stream) == 200
        streams = served.front.context.deliveries[StreamDelivery].open
        client.writer.write(HEALTH)
        await asyncio.sleep(0.05)
        assert sum(streams.values()) == 1
        client.close()
        await until(lambda: sum(streams.values()) == 0)

    serving(tmp_path, work, monkeypatch, settle_s=0.05)


def test_a_long_poll_with_another_request_behind_it_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read from its connection meanwhile, so that the end of it is not noticed by itself."""

    async def work(served: Served) -> None:
        front = served.front
        poll = b'{"QueueUrl": "q", "WaitTimeSeconds": 20}'
        requests = {
            "short": signed(front, "ReceiveMessage", poll, f"Content-Length: {len(poll)}") + poll,
            "long": authorized("POST /subscriptions/s/receive HTTP/1.1", "Content-Length: 18") + b'{"wait_ms": 20000}',
        }
        await front.native(KEY, Subscribe("a = 1", "s", queue="q"))
        for request in requests.values():
            client = await served.connect()
            client.writer.write(request)
            await until(lambda: front.service.waiting_total == 1)
            client.writer.write(HEALTH)
            await asyncio.sleep(0.05)
            client.close()
            await asyncio.sleep(0.05)
            await front.native(KEY, Send("q", [SendEntry(b"one")]))
            received = await front.native(KEY, Receive("q", wait_ms=0))
            assert isinstance(received, Received)
            assert [each.receive_count for each in received.deliveries] == [1]
            await until(lambda: len(served.admission) == 0)

    serving(tmp_path, work, monkeypatch)


# ── size ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nX"], ids=str)
def test_one_line_of_a_head_may_not_be_endless_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    """The parser keeps an unfinished line to itself, so the bytes that go in are counted."""

    async def work(served: Served) -> None:
        client = await served.connect()
        client.writer.write(start)
        assert (await client.trickle(b"x" * 30_000))[:12] in (b"HTTP/1.1 400", b"")
        await until(lambda: len(served.admission) == 0)

    serving(tmp_path, work, monkeypatch, head_s_max=1000.0)


@pytest.mark.parametrize("more", [b"x" * 60_000, b"A" * 60_000])
def test_what_nobody_reads_is_thrown_away_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    async def work(served: Served) -> None:
        client = await served.connect()
        if more[:1] == b"x":
            client.writer.write(head("POST /publish HTTP/1.1", "Content-Length: 1000000000"))
        else:
            client.writer.write(head("POST /publish HTTP/1.1", CHUNKED) + b"0\r\nX: ")
        said = await client.trickle(more)
        assert said[:12] in (b"HTTP/1.1 401", b"HTTP/1.1 413", b"")
        await until(lambda: len(served.admission) == 0)

    serving(tmp_path, work, monkeypatch, body_s_max=1000.0)


# ── before it is known who asks ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", "nobody"])
def test_a_call_of_sqs_by_nobody_is_answered_without_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def work(served: Served) -> None:
        client = await served.connect()
        request = signed(served.front, "ListQueues", b"{}", "Content-Length: 8000000", name=name)
        assert await client.status(request) == 403
        assert await client.reader.read() == b""
        client.close()

    serving(tmp_path, work, monkeypatch)


def test_a_request_without_a_key_is_answered_without_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(served: Served) -> None:
        client = await served.connect()
        assert await client.status(head("POST /publish HTTP/1.1", "Content-Length: 8000000")) == 401
        client.close()

    serving(tmp_path, work, monkeypatch)


def test_bodies_whose_signature_cannot_be_checked_yet_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(served: Served) -> None:
        front = served.front
        body = b'{"QueueUrl": "q", "MessageBody": "%b"}' % (b"x" * 600)
        length = f"Content-Length: {len(body)}"
        first, second, third = [await served.connect() for _ in range(3)]
        first.writer.write(signed(front, "SendMessage", body, length) + body[:100])
        await until(lambda: front.sqs_app._unverified.left_bytes < 1000)
        assert await second.status(signed(front, "SendMessage", body, length)) == 503
        assert await first.status(body[100:]) == 200
        third.writer.write(signed(front, "SendMessage", body, length) + body[:100])
        await until(lambda: front.sqs_app._unverified.left_bytes < 1000)
        third.close()
        await until(lambda: front.sqs_app._unverified.left_bytes == 1000)
        assert await first.status(signed(front, "SendMessage", body, length) + body) == 200
        for client in (first, second):
            client.close()

    serving(tmp_path, work, monkeypatch, unverified_bytes_max=1000)


def test_who_showed_a_key_or_signed_is_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(served: Served) -> None:
        requests: list[tuple[bytes, int, bool]] = [
            (HEALTH, 200, False),
            (head("GET /subscriptions HTTP/1.1"), 401, False),
            (authorized("GET /subscriptions HTTP/1.1"), 200, True),
            (signed(served.front, "ListQueues", b"{}", "Content-Length: 2") + b"{}", 200, True),
            (signed(served.front, "ListQueues", b"{}", "Content-Length: 2") + b"[]", 403, False),
        ]
        clients: list[Any] = []
        for request, status, is_known in requests:
            strangers = len(served.admission.unauthenticated)
            client = await served.connect()
            clients.append(client)
            assert await client.status(request) == status
            assert len(served.admission.unauthenticated) - strangers == (0 if is_known else 1)
        for client in clients:
            client.close()
        await until(lambda: len(served.admission) == 0)

    serving(tmp_path, work, monkeypatch)
