"""A server whose kernels are compiled while it serves: the scan engine stands in, and the local engine takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from tests.unit.service.runtime.hall import Hall, publications
from tests.unit.service.wiring import in_loop

from lavant.broker.protocol.queues import DeleteQueue, Peek, Refused
from lavant.broker.protocol.subscriptions import EncryptedFilter, Publish, Published, Subscribe, Subscribed, Unsubscribe
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.service.engines.interface import ChangeBatch, EngineBatch
from lavant.service.engines.local import LocalEngine
from lavant.service.engines.scan import SUBSCRIPTIONS_MAX


class KernelsLater(Hall):
    """A service whose kernels are compiled when the test says so."""

    def __init__(self) -> None:
        super().__init__(UsedEngine())
        self.kernels: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.awaited: list[bool] = []
        self.service.ingest.kernels.on_awaited = self.awaited.append

    @classmethod
    async def begun(cls) -> KernelsLater:
        hall = cls()
        assert hall.service.ingest.can_scan
        await hall.service.ingest.scan_until(hall.kernels)
        return hall

    @property
    def uses_kernels(self) -> bool:
        engine = self.service.engine
        assert isinstance(engine, UsedEngine)
        return engine.is_used


class UsedEngine(LocalEngine):
    """Notes whether it is used."""

    is_used = False

    def change(self, batches: Sequence[ChangeBatch]) -> None:
        self.is_used = True
        super().change(batches)

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        self.is_used = True
        return super().publish(batch)


@in_loop
async def test_without_kernels_a_server_matches_all_the_same_and_goes_on_with_them() -> None:
    hall = await KernelsLater.begun()
    for name in ("kept", "gone", "lost"):
        await hall.ask(Subscribe("a > 1", name))
    await hall.ask(Publish(publications(1, 2)))
    await hall.ask(Unsubscribe("gone"))
    assert not hall.uses_kernels
    hall.kernels.set_result(None)
    deleted = hall.ask(DeleteQueue("lost"))  # the subscription ends with it, while the engines change
    await hall.ask(Publish(publications(3)))
    assert hall.uses_kernels
    await deleted
    await hall.ask(Subscribe("a > 3", "new"))
    await hall.ask(Publish(publications(4)))
    assert await hall.values("kept") == [b"2", b"3", b"4"]
    assert await hall.values("new") == [b"4"]
    assert isinstance(await hall.ask(Peek("gone", 1)), Refused)
    assert hall.awaited == []
    await hall.close()


@in_loop
async def test_kernels_are_used_even_if_nothing_is_asked() -> None:
    hall = await KernelsLater.begun()
    await hall.ask(Subscribe("a > 1", "kept"))
    hall.kernels.set_result(None)
    while not hall.uses_kernels:
        await asyncio.sleep(0.001)
    await hall.close()


@in_loop
async def test_more_than_can_be_scanned_waits_for_kernels_and_says_so() -> None:
    encrypted = EncryptedFilter(4, np.ones((8, 4)).tobytes())
    for too_much in ([Subscribe(encrypted, "e")], [Subscribe("a > 1", f"s{n}") for n in range(SUBSCRIPTIONS_MAX)]):
        hall = await KernelsLater.begun()
        await hall.ask(Subscribe("a > 1", "kept"))
        asked = [hall.ask(each) for each in too_much]
        published = hall.ask(Publish(publications(2)))
        while not hall.awaited:
            await asyncio.sleep(0.001)
        assert not hall.uses_kernels
        assert not published.done()
        hall.kernels.set_result(None)
        assert all(isinstance(answer, Subscribed) for answer in await asyncio.gather(*asked))
        await published
        assert await hall.values("kept") == [b"2"]
        assert hall.awaited == [True, False]
        await hall.close()


@in_loop
async def test_a_server_can_be_stopped_while_something_waits_for_kernels() -> None:
    hall = await KernelsLater.begun()
    await hall.ask(Subscribe("a > 1", "kept"))
    published = hall.ask(Publish(publications(2)))
    asked = [hall.ask(Subscribe("a > 1", f"s{n}")) for n in range(SUBSCRIPTIONS_MAX)]
    while not hall.awaited:
        await asyncio.sleep(0.001)
    await hall.close()
    assert isinstance(await published, Published)
    assert not any(each.done() for each in asked)


@in_loop
async def test_a_server_whose_kernels_fail_stops() -> None:
    hall = await KernelsLater.begun()
    hall.kernels.set_exception(RuntimeError("no compiler"))
    while not hall.failures:
        await asyncio.sleep(0.001)
    assert [str(each) for each in hall.failures] == ["no compiler"]
