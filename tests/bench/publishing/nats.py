"""NATS as a system to be measured, spoken to in its own text protocol. It keeps nothing, and asks for no receipt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial

from tests.bench.publishing.measuring import System
from tests.bench.publishing.workload import TOPICS, topic_message

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n'


class NatsPublisher:
    """A PING behind the publications: its PONG says that the server has them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        self._reading = asyncio.ensure_future(self._read(reader))

    async def publish(self, start: int, times_s: list[float]) -> None:
        lines = bytearray()
        for place, sent_s in enumerate(times_s):
            content = topic_message(start + place)
            body = json.dumps({**content, "sent_s": sent_s}).encode()
            lines += b"PUB %s %d\r\n%s\r\n" % (content["topic"].encode(), len(body), body)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait(answered)
        self._writer.write(lines + b"PING\r\n")
        await answered

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if line == b"PONG\r\n":
                self._waiting.get_nowait().set_result(None)
            elif line == b"PING\r\n":
                self._writer.write(b"PONG\r\n")


class NatsSubscribers:
    def __init__(self, streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        self._streams = streams

    async def listen(self, notify: Callable[[float], None]) -> None:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                if line.startswith(b"MSG "):
                    size = int(line.rsplit(b" ", 1)[1])
                    body = await reader.readexactly(size + 2)
                    notify(float(json.loads(body)["sent_s"]))
                elif line == b"PING\r\n":
                    writer.write(b"PONG\r\n")

        await asyncio.gather(*(one(*stream) for stream in self._streams))


def by_topic(port: int, *, each: int, subscribers_port: int | None = None, processes: tuple[int, ...] = ()) -> System:
    """Subscribers may be at another server, behind a leaf node."""
    at = port if subscribers_port is None else subscribers_port
    return System("NATS", partial(_publisher, port), partial(_subscribers, at, each), processes=processes)


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(CONNECT)
    while await reader.readline() != b"PONG\r\n":
        pass
    return reader, writer


async def _publisher(port: int) -> NatsPublisher:
    return NatsPublisher(*await _connected(port))


async def _subscribers(port: int, each: int) -> NatsSubscribers:
    streams = []
    for topic in range(TOPICS):
        for _ in range(each):
            reader, writer = await _connected(port)
            writer.write(b"SUB T%d 1\r\nPING\r\n" % topic)
            while await reader.readline() != b"PONG\r\n":
                pass
            streams.append((reader, writer))
    return NatsSubscribers(streams)
