"""WebSockets that end oddly: each ends by a status or a close code, and none by a traceback in the log."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path

import pytest
from tests.unit.service.http_serving import KEY, Client, Served, serving
from tests.unit.service.wiring import until

from lavant.broker.protocol.queues import Send, SendEntry
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.service.delivery.stream import StreamDelivery

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def handshake(*more: str, key: str = KEY) -> bytes:
    lines = [
        "GET /subscriptions/s/stream HTTP/1.1", "Host: queues.test", f"Authorization: Bearer {key}",
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *more, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def frame(opcode: int, payload: bytes, *, first: int = 0x80, size: int | None = None, is_masked: bool = True) -> bytes:
    length = len(payload) if size is None else size
    code = bytes([length]) if length < 126 else b"\x7f" + struct.pack(">Q", length)
    if not is_masked:
        return bytes([first | opcode]) + code + payload
    return bytes([first | opcode, code[0] | 0x80]) + code[1:] + bytes(4) + payload


BAD = {
    "no text": (frame(TEXT, b"\xff\xfe"), 1007),
    "no text, and a close behind it": (frame(TEXT, b"\xff") + frame(CLOSE, b"\x03\xe8"), 1000),
    "no text in the second part": (frame(TEXT, b"{", first=0) + frame(0, b"\xff"), 1007),
    "no acknowledgement": (frame(TEXT, b"[]"), 1007),
    "not masked": (frame(TEXT, b"{}", is_masked=False), 1002),
    "reserved bits": (frame(TEXT, b"{}", first=0xF0), 1002),
    "an unknown kind": (frame(3, b""), 1002),
    "too long": (frame(TEXT, b"", size=(1 << 20) + 1), 1009),
    "a long ping": (frame(PING, bytes(126)), 1002),
    "a close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "a close with a code that is none": (frame(CLOSE, struct.pack(">H", 5)), 1002),
    "a continuation of nothing": (frame(0, b"x"), 1002),
}


async def opened(served: Served) -> Client:
    await served.front.native(KEY, Subscribe("a = 1", "s", queue="q"))
    client = await served.connect()
    client.writer.write(handshake())
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head
    return client


async def close_code(client: Client) -> int:
    """Of the frame by which the server ends; others are skipped."""
    while True:
        first, length = await client.reader.readexactly(2)
        payload = await client.reader.readexactly(
            length if length < 126 else struct.unpack(">H", await client.reader.readexactly(2))[0]
        )
        if first & 15 == CLOSE:
            return int(struct.unpack(">H", payload[:2])[0])


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def check_quiet(log: pytest.LogCaptureFixture) -> None:
    assert [record.getMessage() for record in log.records if record.exc_info or record.levelno >= logging.ERROR] == []
    assert len(log.records) <= 1


@pytest.mark.parametrize("case", BAD, ids=str)
def test_what_is_no_frame_is_told_by_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture, case: str
) -> None:
    data, code = BAD[case]

    async def work(served: Served) -> None:
        client = await opened(served)
        client.writer.write(data)
        assert await close_code(client) == code
        client.close()
        await until(
            lambda: len(served.admission) == 0 and not served.front.context.deliveries[StreamDelivery].open.total()
        )

    serving(tmp_path, work, monkeypatch)
    check_quiet(quiet)


@pytest.mark.parametrize("case", [*BAD, "nothing"], ids=str)
def test_who_does_not_wait_for_the_handshake_or_leaves_in_it_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture, case: str
) -> None:
    """Whatever comes in the same piece, right behind it, or some turns later; the end comes at any turn."""

    async def work(served: Served) -> None:
        await served.front.native(KEY, Subscribe("a = 1", "s", queue="q"))
        data = b"" if case == "nothing" else BAD[case][0]
        for turns in range(8):
            client = await served.connect()
            client.writer.write(handshake() + (data if turns == 0 else b""))
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns:
                client.writer.write(data)
            if turns % 2:
                await asyncio.sleep(0.002)
            client.close()
        await until(
            lambda: len(served.admission) == 0 and not served.front.context.deliveries[StreamDelivery].open.total()
        )

    serving(tmp_path, work, monkeypatch)
    check_quiet(quiet)


@pytest.mark.parametrize(
    "more",
    [["X: " + "y" * 9000], [f"X-{number}: y" for number in range(200)], ["Sec-WebSocket-Key: x"]],
    ids=["a long line", "many lines", "two keys"],
)
def test_a_handshake_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture, more: list[str]
) -> None:
    async def work(served: Served) -> None:
        client = await served.connect()
        assert await client.status(handshake(*more)) == 400
        assert await client.reader.read() == b""
        await until(lambda: len(served.admission) == 0)

    serving(tmp_path, work, monkeypatch)
    check_quiet(quiet)


@pytest.mark.parametrize("turns", range(6))
def test_who_leaves_while_the_server_sends_gets_the_rest_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture, turns: int
) -> None:
    async def work(served: Served) -> None:
        client = await opened(served)
        await served.front.native(KEY, Send("q", [SendEntry(b'{"n":%d}' % number) for number in range(50)]))
        for _ in range(turns):
            await asyncio.sleep(0)
        client.writer.write(frame(TEXT, b"\xff"))
        client.close()
        await until(lambda: sum(served.front.context.deliveries[StreamDelivery].open.values()) == 0)
        await until(lambda: served.front.wiring.queues.visible("q", served.front.wiring.queues.now_ms) > 0)

    serving(tmp_path, work, monkeypatch)
    check_quiet(quiet)
