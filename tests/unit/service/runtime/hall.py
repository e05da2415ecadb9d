"""A service without network whose disk commits by itself."""

from __future__ import annotations

import asyncio

from tests.unit.service.wiring import Wiring

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Peek, Peeked
from lavant.service.engines.local import LocalEngine
from lavant.service.runtime.limits import ServiceLimits


class Hall(Wiring):
    """A service whose disk commits by itself."""

    def __init__(self, engine: LocalEngine | None = None, limits: ServiceLimits | None = None) -> None:
        super().__init__(
            ServiceLimits() if limits is None else limits, engine=LocalEngine(slices=2) if engine is None else engine
        )
        self._committing = asyncio.ensure_future(self._commit())

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(0)
            if self.store.is_hurried:
                self.store.commit()

    def ask(self, request: Request) -> asyncio.Future[Answer]:
        return asyncio.ensure_future(self.service.execute(request))

    async def bodies(self, queue: str) -> list[bytes]:
        peeked = await self.ask(Peek(queue, 1000))
        assert isinstance(peeked, Peeked)
        return [message.body for message in peeked.messages]

    async def values(self, queue: str) -> list[bytes]:
        """Of attribute a."""
        return [body[5 : body.index(b",")] for body in await self.bodies(queue)]

    async def close(self) -> None:
        await self.service.ingest.close()
        self._committing.cancel()
        assert not self.failures


def publications(*values: int) -> list[bytes]:
    return [b'{"a": %d}' % value for value in values]
