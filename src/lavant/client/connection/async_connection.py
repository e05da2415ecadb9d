"""An asynchronous connection: the tasks of one event loop share it, and requests of one turn are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.queues import Refused
from lavant.client.connection.calls import Call
from lavant.client.connection.errors import error_of
from lavant.client.connection.link import AsyncLink
from lavant.client.connection.retries import Pauses, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.operations import Asynchronous, Caller
from lavant.core.errors import ConnectionLost, MissingComponent, NotReady

T = TypeVar("T")


class AsyncConnection(Caller, Asynchronous):
    """Belongs to the event loop that uses it first."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._link: AsyncLink | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def open(self) -> Self:
        """Like `Connection.open`."""
        pauses = Pauses(self._settings.retries)
        while True:
            try:
                await self._connected()
            except NotReady as error:
                pause_s = pauses.after_s(error)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return self

    async def run(self, call: Call[T], *, retries: Retries | None = None) -> T:
        """Like `Connection.run`, except that calls do not wait for each other."""
        link = self._link
        if link is not None and link.is_writable and link.fault is None:  # the usual case
            try:
                answer = await link.ask(call.request, call.wait_ms)
            except ConnectionLost:
                if self._is_closed or not call.is_repeatable:
                    raise
                answer = await self._ask_until_answered(call, retries)
        else:
            answer = await self._ask_until_answered(call, retries)
        return call.read(answer)

    async def close(self) -> None:
        """Closes the connection for good; requests in flight fail."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()
            await self._link.closed.wait()
            self._link = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _answer(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        return self.run(call)

    async def _sleep(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)

    async def _ask_until_answered(self, call: Call[Any], retries: Retries | None) -> Answer:
        pauses = Pauses(self._settings.retries if retries is None else retries)
        while True:
            try:
                link = await self._connected()
                await link.writable()
                return await link.ask(call.request, call.wait_ms)
            except (ConnectionLost, MissingComponent) as error:
                may_repeat = call.is_repeatable or isinstance(error, MissingComponent)
                pause_s = pauses.after_s(error) if may_repeat and not self._is_closed else None
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _connected(self) -> AsyncLink:
        async with self._connecting:
            if self._is_closed:
                raise ConnectionLost(f"this client of {self._settings.address} was closed; connect again")
            if self._link is None or self._link.fault is not None:
                self._link = await self._new_link()
            return self._link

    async def _new_link(self) -> AsyncLink:
        settings = self._settings
        host, port, _ = settings.address
        link = AsyncLink(settings)
        try:
            async with asyncio.timeout(settings.timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port, ssl=settings.tls)
        except BaseException as error:
            link.greeting.cancel()  # no task will await it
            link.close()
            if isinstance(error, OSError):
                raise settings.nobody_answers(error) from None
            raise
        try:
            answer = await link.greeting
            if isinstance(answer, Refused):
                raise error_of(answer)
        except BaseException:
            link.close()
            await link.closed.wait()
            raise
        return link
