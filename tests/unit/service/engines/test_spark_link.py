"""The link to the process that matches: who may use it, and what it is answered when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.property.spark_world import SMALL, World, findings
from tests.unit.service.wiring import until

from lavant.broker.protocol.frames import PREFACE, Hello
from lavant.broker.protocol.match_protocol import FetchWork, MatchWork, decode_answer
from lavant.broker.protocol.queues import Done, Refused
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.core.frames import Frames, frame
from lavant.service.engines.spark.link import EngineLink


class Matcher:
    """The other end."""

    async def connect(self, port: int, secret: bytes) -> Any:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._frames = Frames()
        self._writer.write(PREFACE + frame(0, Hello(secret)))
        return await self.answer()

    def ask(self, request: object) -> None:
        self._writer.write(frame(1, request))

    async def answer(self) -> Any:
        while data := await self._reader.read(1 << 16):
            for _, content in self._frames.feed(data):
                return decode_answer(content)
        return None

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def started(directory: Path) -> tuple[World, EngineLink]:
    world = World(directory, SMALL)
    await world.start()
    link = EngineLink(world.engine, world.ingest, world.deliveries)
    await link.open()
    return world, link


def test_only_who_knows_the_secret_is_told_anything(tmp_path: Path) -> None:
    async def play() -> None:
        world, link = await started(tmp_path)
        stranger, own = Matcher(), Matcher()
        assert isinstance(await stranger.connect(link.port, b"guess"), Refused)
        assert await stranger.answer() is None
        assert not link.greeted.is_set()
        assert await own.connect(link.port, link.secret) == Done()
        assert link.greeted.is_set()
        await own.close()
        await until(lambda: not link.greeted.is_set())
        await stranger.close()
        await link.close()
        world.engine.close()

    asyncio.run(play())


def test_work_is_waited_for_and_what_is_found_is_answered_when_it_is_durable(tmp_path: Path) -> None:
    async def play() -> None:
        world, link = await started(tmp_path)
        await world.ask(Subscribe("a > 0", "s"))
        matcher = Matcher()
        await matcher.connect(link.port, link.secret)
        matcher.ask(FetchWork(2))
        await until(lambda: link.hosts == 2)
        await world.ask(Publish([b'{"a": 1}']))
        work = await matcher.answer()
        assert isinstance(work, MatchWork)
        [stretch] = work.ranges
        [found] = findings(stretch, 9)
        matcher.ask(found)
        answering = asyncio.ensure_future(matcher.answer())
        await until(lambda: len(world.bodies("s")) == 1)
        assert not answering.done()
        await world.settle()
        assert await answering == Done()
        matcher.ask(found)
        assert await matcher.answer() == Done()  # once more: it is there already
        assert len(world.bodies("s")) == 1
        await matcher.close()
        await link.close()
        world.engine.close()

    asyncio.run(play())


def test_a_round_that_failed_is_known_until_one_does_not(tmp_path: Path) -> None:
    async def play() -> None:
        world, link = await started(tmp_path)
        await world.ask(Subscribe("a = 1", "s"))
        await world.ask(Publish([b'{"a": 1}']))
        matcher = Matcher()
        await matcher.connect(link.port, link.secret)
        for fault in ("KeyError: 'x'", "", "OSError"):
            matcher.ask(FetchWork(2, fault))
            assert isinstance(await matcher.answer(), MatchWork)
            assert (link.hosts, link.fault) == (2, fault)
        await matcher.close()
        await until(lambda: not link.greeted.is_set())
        assert (link.hosts, link.fault) == (0, "")
        await link.close()
        world.engine.close()

    asyncio.run(play())
