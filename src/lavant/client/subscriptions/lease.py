"""The lease of a temporary subscription, as its client keeps it.

    every third of the lease: RenewSubscription ──► renewed
                                    └──► unknown: it had ended ──► Subscribe once more, under the same name
    end ──► Unsubscribe, tried again for some seconds; if nobody answers, the server ends it when the lease is over

So a temporary subscription is there as long as its client is, whatever happens to the server. What was published
between its end and the next `Subscribe` is missed: `lapses` counts how often that was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.retries import Retries
from lavant.client.subscriptions import calls
from lavant.core.errors import LavantError, UnknownSubscription

END_S_MAX = 5.0
"""How long a client that closes tries to tell the server."""

_logger = logging.getLogger(__name__)


class Lease:
    """Belongs to the event loop in which it is started."""

    def __init__(self, connection: AsyncConnection, request: Subscribe) -> None:
        self.lapses = 0
        """How often the subscription had ended at the server, and was made anew."""
        self._connection = connection
        self._request = request
        self._lease_s = request.lease_ms / SECOND_MS
        self._renewing: asyncio.Task[None] | None = None
        self._is_ended = False
        self._turn = asyncio.Lock()
        """So that nothing brings it back that had begun before its end."""

    def start(self) -> None:
        """Renew it from now on."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew_always())

    async def renew(self) -> None:
        """Now. If the subscription is gone, it is made anew, unless it has ended here."""
        async with self._turn:
            if self._is_ended:
                raise UnknownSubscription(f"subscription {self._request.name!r} has ended here")
            try:
                await self._connection.run(calls.renew(self._request.name))
            except UnknownSubscription:
                await self._make_anew()

    async def stop(self) -> None:
        """Renew it no longer."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def _make_anew(self) -> None:
        if await self._connection.run(calls.subscribe_again(self._request)):
            self.lapses += 1
            _logger.warning(
                "subscription %s had ended at the server, which had not heard of this client for %g s, or somebody "
                "removed it; it was made anew, and what was published meanwhile is missed",
                self._request.name,
                self._lease_s,
            )

    async def end(self) -> None:
        """Remove the subscription. Never raises: if the server cannot be told, the end of the lease does it."""
        self._is_ended = True
        await self.stop()
        try:
            async with asyncio.timeout(END_S_MAX), self._turn:
                await self._connection.run(calls.remove(self._request.name), retries=Retries(within_s=END_S_MAX))
        except UnknownSubscription:
            pass
        except (LavantError, TimeoutError) as error:
            _logger.warning(
                "subscription %s could not be removed; the server ends it when it has not heard of this client for "
                "%g s: %s",
                self._request.name,
                self._lease_s,
                error if str(error) else "it does not answer",
            )

    async def _renew_always(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self.renew()
            except LavantError as error:
                _logger.warning("the lease of subscription %s could not be renewed: %s", self._request.name, error)


async def end_all(leases: Iterable[Lease]) -> None:
    """At the same time, so that a server that is gone is waited for once."""
    await asyncio.gather(*(lease.end() for lease in leases))
