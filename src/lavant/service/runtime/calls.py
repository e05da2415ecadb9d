"""Requests of this process itself: of front ends that answer others, and of consumers inside of the server.

asked ──► waits ──► leased ──► answered ──► handed over
            │          │          │
            └──────────┴──────────┴── abandoned: it waits no more, and what it leased was never received
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.queues import Refused
from lavant.service.auth.keys import Principal
from lavant.service.net.connections import ClientGone, RequestConnection

if TYPE_CHECKING:
    from lavant.service.runtime.broker_runtime import BrokerRuntime


class RuntimeCall:
    """A client of this process that asks once. What it leases is its own until it is abandoned or cancelled."""

    def __init__(self, service: BrokerRuntime) -> None:
        self.answer: asyncio.Future[Answer] = service.loop.create_future()
        self._service = service
        self._lease: Reply | None = None
        self._is_abandoned = False

    def reply(self, reply: Reply) -> None:
        if self._is_abandoned:
            self._service.undelivered(reply)
            return
        if reply.queue:
            self._lease = reply
        if not self.answer.done():
            self.answer.set_result(reply.answer)

    def abandon(self) -> None:
        """Nobody waits for the answer any more: a receive that waits is forgotten, what was leased goes back."""
        self._is_abandoned = True
        if self._lease is not None:
            self._service.undelivered(self._lease)
        elif not self.answer.done() or self.answer.cancelled():
            self._service.forget(self)

    def over(self) -> None:
        """Whoever asked has the answer."""


class ConsumerCall(RuntimeCall):
    """A receive for a principal, perhaps over a connection. It is abandoned if the one is revoked or the other lost."""

    def __init__(self, service: BrokerRuntime, principal: Principal, connection: RequestConnection | None) -> None:
        super().__init__(service)
        self._revocation = principal.revocation
        self._connection = connection
        self._revocation.watch(self._revoke)
        if connection is not None:
            connection.watch(self._lost)

    def reply(self, reply: Reply) -> None:
        if reply.queue and self._connection is not None and self._connection.is_lost:
            self._connection.abort()  # nobody else may have noticed
            self._lost()
        super().reply(reply)

    def over(self) -> None:
        self._revocation.unwatch(self._revoke)
        if self._connection is not None and self._lease is None:
            self._connection.unwatch(self._lost)  # it is of interest only as long as there is something to lose

    def _revoke(self) -> None:
        self.abandon()
        if not self.answer.done():
            self.answer.set_result(Refused("AccessDenied", "the key was changed or removed"))

    def _lost(self) -> None:
        self.abandon()
        if not self.answer.done():
            self.answer.set_exception(ClientGone())
            self.answer.exception()  # whoever waits is told, and if nobody does that is no mistake
