"""The Spark engine without Spark: a service whose disk can lose what is not committed, and a matcher by brute force."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lavant.broker.machine.effects import Effect, Mistake, Record, Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import replay
from lavant.broker.matching import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.protocol.match_protocol import MatchResults, OffsetRange
from lavant.broker.protocol.queues import Done, Peek, Peeked
from lavant.broker.slices import SliceReader
from lavant.broker.storage.log import LogReader
from lavant.core.publications.batch import PublicationBatch
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.settings import SparkLimits
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.ingest.ingest import Ingest
from lavant.service.runtime.limits import LIMITS

SMALL = SparkLimits(range_publications_max=5, ranges_max=2, file_bytes_max=4096)


class Asking:
    """A client that asks once."""

    def __init__(self) -> None:
        self.answer: Any = None

    def reply(self, reply: Reply) -> None:
        self.answer = reply.answer


class World:
    """A service on a directory; `crash` ends it, and what the disk does not have is gone."""

    def __init__(self, directory: Path, limits: SparkLimits = SMALL, slices: int = 2) -> None:
        self._directory = directory
        self.slices = slices
        self._limits = limits
        self.durable: list[bytes] = []
        self.staged: list[bytes] = []

    async def start(self) -> None:
        self.failures: list[Exception] = []
        broker = replay(None, self.durable)
        self.lanes = broker.subscriptions.log_offsets
        self.server = BrokerMachine(broker, position=len(self.durable))
        self.engine = self.make_engine()
        clock = ServerClock(broker.queues.now_ms if self.durable else None)
        self.ingest = Ingest(
            self.server,
            self.engine,
            clock,
            limits=LIMITS,
            perform=self.perform,
            commit=lambda: None,
            on_failed=self.failures.append,
        )
        if isinstance(self.engine, SparkEngine):
            self.deliveries = self.ingest.match_delivery(self.engine)
        self.perform(self.server.open(clock.now_ms()))
        await self.ingest.load()

    def make_engine(self) -> SparkEngine:
        return SparkEngine(self._directory, self.lanes, slices=self.slices, identity=b"journal", limits=self._limits)

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self.staged.append(effect.data)
            elif isinstance(effect, Mistake):
                raise effect.error
            else:
                effect.client.reply(effect)

    async def settle(self, *, commit: bool = True) -> None:
        """All that is under way is done, and on disk."""
        while self.ingest._task is not None:
            await self.ingest._task
        if commit:
            self.durable += self.staged
            self.staged.clear()
            self.perform(self.server.committed(len(self.durable), 0))
        assert not self.failures, self.failures

    async def ask(self, request: Any, *, commit: bool = True) -> Any:
        asking = Asking()
        self.ingest.request(asking, 0, request)
        await self.settle(commit=commit)
        return asking.answer

    async def report(self, found: MatchResults, *, commit: bool = True) -> Any:
        asking = Asking()
        self.ingest.deliver_matches(asking, 0, found, self.deliveries)
        await self.settle(commit=commit)
        if isinstance(asking.answer, Done):
            self.engine.settled(found.log_name, found.end)
        return asking.answer

    async def crash(self) -> None:
        """The process is gone at once: its files are as they are, and the disk lost what it was not asked to keep."""
        await self.settle(commit=False)
        self.staged.clear()
        self.engine.close()
        await self.start()

    async def deliver_all(self) -> None:
        while self.lanes.lag:
            for stretch in self.engine.work(1 << 60):
                for found in findings(stretch, 3):
                    await self.report(found)

    def bodies(self, queue: str) -> list[dict[str, Any]]:
        peeked = self.server.queues.handle(Peek(queue, 1000), self.server.queues.now_ms)
        assert isinstance(peeked, Peeked)
        return [msgspec.json.decode(message.body) for message in peeked.messages]


def findings(stretch: OffsetRange, publications_max: int) -> list[MatchResults]:
    """What Spark would report: all slices at the version that the stretch names, in parts of so many publications."""
    reader = SliceReader(Path(stretch.subscriptions))
    version = reader.version(stretch.version)
    slabs = [slab.records for slab in LogReader(Path(stretch.log)).read(stretch.start, stretch.end)]
    lists: list[np.ndarray[Any, Any]] = []
    for records in slabs:
        batch = PublicationBatch(records)
        merged = merge([reader.matcher(number, version).match(batch) for number in range(reader.settings.slices)])
        lists += [merged.ids[merged.offsets[i] : merged.offsets[i + 1]] for i in range(len(batch))]
    return [
        MatchResults.of(stretch.log_name, stretch.start + first, _matches(lists[first : first + publications_max]))
        for first in range(0, len(lists), publications_max)
    ]


def _matches(lists: list[np.ndarray[Any, Any]]) -> Matches:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return Matches(offsets, np.concatenate(lists).astype(np.uint32))


def run(work: Any) -> None:
    asyncio.run(work)
