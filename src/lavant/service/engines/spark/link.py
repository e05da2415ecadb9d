"""The link to the Spark process: a loopback port where it fetches work and reports results, with a secret per start.

Requests are answered one after the other; `FetchWork` is a long poll of some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from typing import cast

from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.frames import GREETING_NUMBER, PREFACE, decode_hello
from lavant.broker.protocol.match_protocol import Answer, FetchWork, MatchResults, MatchWork, decode_request
from lavant.broker.protocol.queues import Done, Refused
from lavant.core.errors import UNDECODABLE, LavantError
from lavant.core.frames import Frames, frame
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.ingest.ingest import Ingest
from lavant.service.runtime.ingest.match_delivery import MatchDelivery

HOST = "127.0.0.1"
NEXT_S_MAX = 5.0
GREETING_S_MAX = 10.0
READ_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


class _Report:
    """The client of one report, which waits for the answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def reply(self, reply: Reply) -> None:
        if not self.answer.done():
            self.answer.set_result(cast(Answer, reply.answer))


class EngineLink:
    """Listens at `port`; the process must present `secret`."""

    def __init__(self, engine: SparkEngine, ingest: Ingest, deliveries: MatchDelivery) -> None:
        self.port = 0
        self.secret = secrets.token_bytes(32)
        self.greeted = asyncio.Event()
        """The process has connected."""
        self.hosts = 0
        """Hosts that match; 0 before the first request for work."""
        self.fault = ""
        """Why the last round failed; empty if it did not."""
        self._engine = engine
        self._ingest = ingest
        self._deliveries = deliveries
        self._clock = ServerClock()
        self._has_work = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        engine.on_work = self._has_work.set

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def lost(self) -> None:
        """The process ended or disconnected."""
        self.greeted.clear()
        self.hosts = 0
        self.fault = ""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            frames = await asyncio.wait_for(self._greet(reader, writer), GREETING_S_MAX)
            if frames is not None:
                try:
                    await self._serve(frames, reader, writer)
                finally:
                    self.lost()
        except asyncio.CancelledError:  # by `close`; asyncio would log it
            return
        except (OSError, EOFError, TimeoutError, LavantError, *UNDECODABLE) as error:
            _logger.info("the Spark process disconnected: %s", error)
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Frames | None:
        """None if the secret is wrong."""
        if await reader.readexactly(len(PREFACE)) != PREFACE:
            return None
        frames = Frames()
        while True:
            for _, content in frames.feed(await _some(reader)):
                if not hmac.compare_digest(decode_hello(content).token, self.secret):
                    writer.write(frame(GREETING_NUMBER, Refused("AccessDenied", "wrong secret")))
                    return None
                writer.write(frame(GREETING_NUMBER, Done()))
                self.greeted.set()
                return frames

    async def _serve(self, frames: Frames, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            for number, content in frames.feed(await _some(reader)):
                request = decode_request(content)
                answer = await (self._fetch(request) if isinstance(request, FetchWork) else self._deliver(request))
                writer.write(frame(number, answer))
                await writer.drain()

    async def _fetch(self, request: FetchWork) -> MatchWork:
        self.hosts = request.hosts
        self.fault = request.fault
        give_up_ms = self._clock.now_ms() + int(NEXT_S_MAX * 1000)
        while True:
            self._has_work.clear()
            now_ms = self._clock.now_ms()
            ranges = self._engine.work(now_ms)
            if ranges or now_ms >= give_up_ms:
                return MatchWork(ranges)
            wakeup_ms = self._engine.wakeup_ms()
            until_ms = give_up_ms if wakeup_ms is None else min(give_up_ms, wakeup_ms)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), max(0, until_ms - now_ms) / 1000)

    async def _deliver(self, results: MatchResults) -> Answer:
        report = _Report()
        self._ingest.deliver_matches(report, 0, results, self._deliveries)
        answer = await report.answer
        if isinstance(answer, Refused):
            self._engine.block(results.log_name, self._clock.now_ms())
        else:
            self._engine.settled(results.log_name, results.end)
        return answer


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(READ_BYTES)
    if not data:
        raise EOFError("the connection ended")
    return data
