"""What every action works with: the door to the broker, names and handles; and the call that it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from lavant.broker.queues.commands import Refused
from lavant.broker.serving.commands import Answer, Request
from lavant.service.authorization import Execute, carry_out
from lavant.service.keys import Principal
from lavant.service.sqs.faults import refusal
from lavant.service.sqs.seals import Seals
from lavant.service.sqs.settings import SqsSettings
from lavant.service.tenants import Tenant

_T = TypeVar("_T")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Desk:
    """Of one principal: its requests are placed in its namespace, and its handles are good there only."""

    __slots__ = ("_arn_prefix", "_execute", "_principal", "changing", "seals", "settings")

    def __init__(self, execute: Execute, principal: Principal, settings: SqsSettings, changing: asyncio.Lock) -> None:
        self.settings = settings
        self.seals = Seals(settings.salt, principal.namespace)
        self.changing = changing
        """Held while a queue's settings or tags are read and written again, so that no change is lost between."""
        self._execute = execute
        self._principal = principal
        self._arn_prefix = f"arn:aws:sqs:{settings.region}:{settings.account}:"

    async def execute(self, request: Request) -> Answer:
        """A command goes in, its answer comes out. It is cancelled if the client of a receive that waits is gone."""
        return await carry_out(self._execute, self._principal, request)

    async def ask(self, request: Request, answer: type[_T]) -> _T:
        """The hub's answer of the type that belongs to the request; a refusal is raised in the protocol's words."""
        given = await self.execute(request)
        if isinstance(given, answer):
            return given
        if isinstance(given, Refused):
            raise refusal(given)
        raise TypeError(f"{type(request).__name__} was answered by {type(given).__name__}, not {answer.__name__}")

    def arn(self, queue: str) -> str:
        return self._arn_prefix + queue


class Caller(NamedTuple):
    """Who is at the other end of the connection."""

    authenticated: Callable[[Tenant], None]
    """To be told that it is known who it is; raises `QuotaExceeded` if that one has too many connections."""
    gone: Callable[[], Coroutine[Any, Any, None]]
    """Returns when it is gone."""


class Call:
    """One request: by which address the server was called, and how to notice that the caller is gone."""

    __slots__ = ("_gone", "_url_prefix")

    def __init__(self, url_prefix: str, gone: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._url_prefix = url_prefix
        self._gone = gone

    def queue_url(self, queue: str) -> str:
        return self._url_prefix + queue

    async def unless_gone(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something that may take long, but only as long as the caller is there."""
        working, gone = asyncio.ensure_future(work), asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise ClientGone
        finally:
            working.cancel()
            gone.cancel()
