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
from lavant.client.connection.redirects import FOLLOWED_MAX, PAUSE_S, RequestPart, merged, settled
from lavant.client.connection.retries import NO_RETRIES, Pauses, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.operations import Asynchronous, Caller
from lavant.core.addresses import Address
from lavant.core.errors import AccessDenied, ConnectionLost, MissingComponent, NotReady

T = TypeVar("T")


class AsyncConnection(Caller, Asynchronous):
    """Belongs to the event loop that uses it first."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._link: AsyncLink | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False
        self._others: dict[Address, AsyncConnection] = {}
        """Connections to brokers to which subscriptions have moved."""

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
        redirects = self._settings.redirects
        if redirects and redirects.knows(call.request):
            return await self._follow(call, retries)
        answer = await self._ask(call, retries)
        if type(answer) is Refused and answer.address:
            redirects.learn(call.request, answer)
            return await self._follow(call, retries)
        return call.read(answer)

    async def _follow(self, call: Call[T], retries: Retries | None) -> T:
        """Like `Connection._follow`."""
        redirects = self._settings.redirects
        for _ in range(FOLLOWED_MAX):
            answers: list[tuple[RequestPart, Answer]] = []
            for part in redirects.parts(call.request):
                given = await self._answer_elsewhere(call, part, retries)
                if given is None:
                    break
                redirects.answered(part, given)
                answers.append((part, settled(part, given)))
            else:
                answer = merged(answers)
                if type(answer) is not Refused or not redirects.goes_on(call.request, answers[-1][0], answer):
                    return call.read(answer)
            await asyncio.sleep(PAUSE_S)
        return call.read(answer)

    async def _answer_elsewhere(self, call: Call[T], part: RequestPart, retries: Retries | None) -> Answer | None:
        """Like `Connection._answer_elsewhere`."""
        call = call.of(part.request)
        if part.address is None:
            return await self._ask(call, retries)
        if not part.is_optional:
            return await self._at(part.address)._ask(call, retries)
        try:
            return await self._at(part.address)._ask(call.once(), NO_RETRIES)
        except (MissingComponent, AccessDenied):
            self._settings.redirects.forget(part.request)
            return None
        except ConnectionLost:
            self._settings.redirects.unanswered(part)
            if not call.is_repeatable:
                raise
            return await self._at(part.address)._ask(call, retries)

    def _at(self, address: Address) -> AsyncConnection:
        if address == self._settings.address:
            return self
        self._check_open()  # a connection that is opened after `close` would stay open
        return self._others.setdefault(address, AsyncConnection(self._settings.at(address)))

    async def _ask(self, call: Call[Any], retries: Retries | None) -> Answer:
        link = self._link
        if link is not None and link.is_writable and link.fault is None:  # the usual case
            try:
                return await link.ask(call.request, call.wait_ms)
            except ConnectionLost:
                if self._is_closed or not call.is_repeatable:
                    raise
        return await self._ask_until_answered(call, retries)

    async def close(self) -> None:
        """Closes the connection for good; requests in flight fail."""
        self._is_closed = True
        for other in self._others.values():
            await other.close()
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
            self._check_open()
            if self._link is None or self._link.fault is not None:
                link = await self._new_link()
                if self._is_closed:  # meanwhile
                    link.close()
                    await link.closed.wait()
                self._check_open()
                self._link = link
            return self._link

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionLost(f"this client of {self._settings.address} was closed; connect again")

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
