"""Where the process that matches asks for work and reports: a port of its own on loopback, with a secret of this start.

Requests are answered one after the other; a `FetchWork` waits until there is something, for some seconds at most.
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
from lavant.service.runtime.ingest import Ingest
from lavant.service.runtime.match_delivery import MatchDelivery

HOST = "127.0.0.1"
NEXT_S_MAX = 5.0
GREETING_S_MAX = 10.0
READ_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


class _Report:
    """Whoever reports something found, and waits for the answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def reply(self, reply: Reply) -> None:
        if not self.answer.done():
            self.answer.set_result(cast(Answer, reply.answer))


class EngineLink:
    """The listener. `port` is where, `secret` what the process has to show."""

    def __init__(self, engine: SparkEngine, ingest: Ingest, deliveries: MatchDelivery) -> None:
        self.port = 0
        self.secret = secrets.token_bytes(32)
        self.greeted = asyncio.Event()
        """The process is there."""
        self.hosts = 0
        """On which it matches; 0 before it asked for work."""
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
        """The process has ended, or hung up, which comes to the same."""
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
        except asyncio.CancelledError:  # by `close`; Python's streams would complain
            return
        except (OSError, EOFError, TimeoutError, LavantError, *UNDECODABLE) as error:
            _logger.info("the process that matches hung up: %s", error)
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Frames | None:
        """None if it does not know the secret."""
        if await reader.readexactly(len(PREFACE)) != PREFACE:
            return None
        frames = Frames()
        while True:
            for _, content in frames.feed(await _some(reader)):
                if not hmac.compare_digest(decode_hello(content).token, self.secret):
                    writer.write(frame(GREETING_NUMBER, Refused("AccessDenied", "this is not the secret")))
                    return None
                writer.write(frame(GREETING_NUMBER, Done()))
                self.greeted.set()
                return frames

    async def _serve(self, frames: Frames, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            for number, content in frames.feed(await _some(reader)):
                request = decode_request(content)
                answer = await (self._work(request) if isinstance(request, FetchWork) else self._found(request))
                writer.write(frame(number, answer))
                await writer.drain()

    async def _work(self, request: FetchWork) -> MatchWork:
        self.hosts = request.hosts
        self.fault = request.fault
        give_up_ms = self._clock.now_ms() + int(NEXT_S_MAX * 1000)
        while True:
            self._has_work.clear()
            now_ms = self._clock.now_ms()
            stretches = self._engine.work(now_ms)
            if stretches or now_ms >= give_up_ms:
                return MatchWork(stretches)
            wakeup_ms = self._engine.wakeup_ms()
            until_ms = give_up_ms if wakeup_ms is None else min(give_up_ms, wakeup_ms)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), max(0, until_ms - now_ms) / 1000)

    async def _found(self, found: MatchResults) -> Answer:
        report = _Report()
        self._ingest.deliver_matches(report, 0, found, self._deliveries)
        answer = await report.answer
        if isinstance(answer, Refused):
            self._engine.block(found.lane, self._clock.now_ms())
        else:
            self._engine.settled(found.lane, found.end)
        return answer


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(READ_BYTES)
    if not data:
        raise EOFError("it is gone")
    return data
