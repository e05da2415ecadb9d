"""Offsets of the Spark engine, against a list: whatever crashes when, everything accepted is delivered, and once."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.spark_world import World, findings, run

from lavant.broker.protocol.match_protocol import MatchResults
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import ConfigureQueue, Refused
from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Unsubscribe
from lavant.service.engines.spark.settings import SparkLimits

NAMESPACES = ("", "acme")
BOUNDS = (0, 2, 4)
LATER_MS = 1 << 60
RETRY_MS = 500


STEP = st.one_of(
    st.tuples(st.just("subscribe"), st.sampled_from(NAMESPACES), st.sampled_from(BOUNDS)),
    st.tuples(st.just("unsubscribe"), st.sampled_from(NAMESPACES), st.sampled_from(BOUNDS)),
    st.tuples(st.just("publish"), st.sampled_from(NAMESPACES), st.integers(1, 6)),
    st.tuples(st.just("publish and crash"), st.sampled_from(NAMESPACES), st.integers(1, 6)),
    st.tuples(st.just("round"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("repeat"), st.just(0), st.just(0)),
    st.tuples(st.just("crash"), st.just(0), st.just(0)),
)


@settings(max_examples=30)
@given(steps=st.lists(STEP, max_size=14))
def test_what_was_accepted_is_delivered_once_to_all_who_were_subscribed_then(steps: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        run(_play(Path(place), [("subscribe", "", 0), *steps]))


async def _play(directory: Path, steps: list[tuple[str, Any, Any]]) -> None:
    play = Play(directory)
    await play.world.start()
    for kind, first, second in steps:
        await getattr(play, kind.replace(" ", "_"))(first, second)
    await play.world.deliver_all()
    await play.world.crash()
    await play.world.deliver_all()  # the disk may have lost that some of it was
    play.check()
    play.world.engine.close()


class Play:
    """Publications say their own number, and whom they are for."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self._subscribed: dict[tuple[str, int], int] = {}
        """Who is subscribed now, and since how many publications of the namespace."""
        self._published: dict[str, list[int]] = {namespace: [] for namespace in NAMESPACES}
        self._number = 0
        self._last: list[MatchResults] = []

    async def subscribe(self, namespace: str, bound: int) -> None:
        await self.world.ask(Subscribe(f"a > {bound}", f"s{bound}", namespace=namespace))
        self._subscribed.setdefault((namespace, bound), len(self._published[namespace]))

    async def unsubscribe(self, namespace: str, bound: int) -> None:
        await self.world.ask(Unsubscribe(f"s{bound}", namespace))
        self._subscribed.pop((namespace, bound), None)

    async def publish(self, namespace: str, count: int) -> None:
        request = self._request(namespace, count)
        assert isinstance(await self.world.ask(request), Published)
        assert isinstance(await self.world.ask(request), Published)  # once more under its key: nothing happens

    async def publish_and_crash(self, namespace: str, count: int) -> None:
        """The log has it, the journal not: nobody was told, and the publisher tries again."""
        request = self._request(namespace, count)
        assert await self.world.ask(request, commit=False) is None
        await self.crash()
        assert isinstance(await self.world.ask(request), Published)

    async def round(self, reports: int, is_committed: bool) -> None:
        """Spark reports only so much of what it found, and the disk may have only the first of it."""
        for stretch in self.world.engine.work(LATER_MS):
            self._last = findings(stretch, 2)
            for place, found in enumerate(self._last[:reports]):
                await self.world.report(found, commit=is_committed or place == 0)

    async def repeat(self, *_: int) -> None:
        for found in self._last:
            await self.world.report(found)

    async def crash(self, *_: int) -> None:
        await self.world.crash()
        self._last = []

    def check(self) -> None:
        for (namespace, bound), since in self._subscribed.items():
            got = [body["n"] for body in self.world.bodies(f"{namespace}/s{bound}" if namespace else f"s{bound}")]
            published = self._published[namespace]
            assert len(set(got)) == len(got), "something came twice"
            assert got == [n for n in published if n % 6 > bound and n in got], "out of order, or not wanted"
            assert {n for n in published[since:] if n % 6 > bound} <= set(got), "publications are missing"

    def _request(self, namespace: str, count: int) -> Publish:
        numbers = list(range(self._number, self._number + count))
        self._number += count
        self._published[namespace] += numbers
        return Publish([b'{"a": %d, "n": %d}' % (n % 6, n) for n in numbers], f"key-{self._number}", namespace)


def test_what_comes_too_early_or_of_nobody_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        await world.start()
        await world.ask(Subscribe("a > 0", "s"))
        await world.ask(Publish([b'{"a": 1}'] * 3))
        [stretch] = world.engine.work(0)
        first, second, third = findings(stretch, 1)
        assert isinstance(await world.report(second), Refused)
        beyond = MatchResults(third.log_name, third.start + 1, third.ends, third.ids)
        assert isinstance(await world.report(beyond), Refused)
        await world.report(first)
        assert world.lanes["plain"] == (3, 1)
        world.engine.close()

    run(play())


def test_the_log_keeps_what_the_disk_does_not_have_in_queues_yet(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        await world.start()
        await world.ask(Subscribe("a > 0", "s"))
        await world.ask(Publish([b'{"a": 1}'] * 4))
        [stretch] = world.engine.work(0)
        for found in findings(stretch, 1) * 2:
            await world.report(found, commit=False)
        assert world.lanes.lag == 0
        await world.crash()
        assert world.lanes.lag == 4
        await world.deliver_all()
        assert len(world.bodies("s")) == 4
        world.engine.close()

    run(play())


def test_logs_are_trimmed_behind_what_is_delivered(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        await world.start()
        await world.ask(Subscribe("a > 5", "s"))
        for _ in range(30):
            await world.ask(Publish([b'{"a": 1, "text": "%s"}' % (b"x" * 500)] * 3))
            await world.deliver_all()
        assert sum(path.stat().st_size for path in (tmp_path / "plain" / "log").iterdir()) < 2 * 4096
        world.engine.close()

    run(play())


def test_a_full_queue_stops_its_lane_until_there_is_room_and_no_other(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        await world.start()
        await world.ask(Subscribe("a > 0", "s", config=QueueConfig(depth_max=2)))
        await world.ask(Subscribe("a > 0", "t", namespace="acme"))
        for namespace in NAMESPACES:
            await world.ask(Publish([b'{"a": 1}'] * 3, namespace=namespace))
        reported = {stretch.log_name: await world.report(findings(stretch, 9)[0]) for stretch in world.engine.work(0)}
        assert isinstance(reported["plain"], Refused)
        assert reported["plain"].code == "QueueFull"
        assert (world.lanes["plain"], world.lanes["plain-acme"]) == ((3, 0), (3, 3))
        world.engine.block("plain", 1000)
        assert not world.engine.work(1000)
        assert world.engine.wakeup_ms() == 1000 + RETRY_MS
        world.server.queues.handle(ConfigureQueue("s", QueueConfig(depth_max=9)), 1)
        await world.deliver_all()
        assert len(world.bodies("s")) == 3
        world.engine.close()

    run(play())


def test_what_is_too_large_for_a_queue_is_left_out_there_and_nowhere_else(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        await world.start()
        await world.ask(Subscribe("a > 0", "small", config=QueueConfig(message_bytes_max=1024)))
        await world.ask(Subscribe("a > 0", "large"))
        rows = [b'{"a": 1}', b'{"a": 2, "text": "%s"}' % (b"x" * 2000), b'{"a": 3}']
        await world.ask(Publish(rows))
        await world.deliver_all()
        assert [body["a"] for body in world.bodies("large")] == [1, 2, 3]
        assert [body["a"] for body in world.bodies("small")] == [1, 3]
        assert world.deliveries.too_large == 1
        world.engine.close()

    run(play())


def test_too_much_that_waits_is_refused_until_it_is_delivered(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path, SparkLimits(owed_max=4))
        await world.start()
        await world.ask(Subscribe("a > 0", "s"))
        assert isinstance(await world.ask(Publish([b'{"a": 1}'] * 4)), Published)
        refused = await world.ask(Publish([b'{"a": 1}']))
        assert isinstance(refused, Refused)
        assert refused.code == "Overloaded"
        assert isinstance(await world.ask(Publish([b'{"a": 1}'], namespace="acme")), Published)
        await world.deliver_all()
        assert isinstance(await world.ask(Publish([b'{"a": 1}'])), Published)
        world.engine.close()

    run(play())


def test_stretches_are_bounded_by_publications_bytes_and_what_could_match(tmp_path: Path) -> None:
    async def play(place: str, limits: SparkLimits) -> list[tuple[int, int]]:
        world = World(tmp_path / place, limits)
        await world.start()
        for number in range(4):
            await world.ask(Subscribe("a > 0", f"s{number}"))
        for _ in range(4):
            await world.ask(Publish([b'{"a": 1}'] * 3))
        found: list[tuple[int, int]] = []
        while world.lanes.lag:
            [stretch] = world.engine.work(0)
            found.append((stretch.start, stretch.end))
            for each in findings(stretch, 99):
                await world.report(each)
        world.engine.close()
        return found

    assert asyncio.run(play("all", SparkLimits())) == [(0, 12)]
    assert asyncio.run(play("publications", SparkLimits(range_publications_max=7))) == [(0, 7), (7, 12)]
    assert asyncio.run(play("matches", SparkLimits(range_matches_max=20))) == [(0, 5), (5, 10), (10, 12)]
    assert asyncio.run(play("bytes", SparkLimits(range_bytes_max=1))) == [(0, 3), (3, 6), (6, 9), (9, 12)]
