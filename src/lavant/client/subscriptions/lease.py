"""Renews the lease of a temporary subscription.

    every third of the lease: RenewSubscription ──► renewed
                                    └──► unknown: it had ended ──► Subscribe again, under the same name
    end ──► Unsubscribe, retried for some seconds; if the server does not answer, the lease expires

So a temporary subscription exists as long as its client, whatever happens to the server. Publications between its end
and the next `Subscribe` are missed: `lapses` counts how often that happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from msgspec.structs import replace

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.subscriptions import EncryptedFilter, Subscribe
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.retries import Retries
from lavant.client.subscriptions import calls
from lavant.core.errors import LavantError, UnknownSubscription

END_S_MAX = 5.0
"""How long a closing client tries to unsubscribe."""

_logger = logging.getLogger(__name__)


class Lease:
    """Belongs to the event loop that starts it."""

    def __init__(self, connection: AsyncConnection, request: Subscribe) -> None:
        self.lapses = 0
        """How often the subscription had ended at the server and was made again."""
        self._connection = connection
        self._request = request
        self._lease_s = request.lease_ms / SECOND_MS
        self._renewing: asyncio.Task[None] | None = None
        self._is_ended = False
        self._exclusive = asyncio.Lock()
        """Keeps a renewal that began earlier from restoring an ended subscription."""

    def start(self) -> None:
        """Starts to renew the lease."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew_forever())

    def updated(self, filter: str | EncryptedFilter) -> None:
        """The subscription has another filter now, also if it must be made again."""
        self._request = replace(self._request, filter=filter)

    async def renew(self) -> None:
        """Renews the lease now. If the server has no such subscription, makes it again, unless it has ended here."""
        async with self._exclusive:
            if self._is_ended:
                raise UnknownSubscription(f"subscription {self._request.name!r} has ended here")
            try:
                await self._connection.run(calls.renew(self._request.name))
            except UnknownSubscription:
                await self._subscribe_again()

    async def stop(self) -> None:
        """Stops renewing the lease."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def _subscribe_again(self) -> None:
        if await self._connection.run(calls.subscribe_again(self._request)):
            self.lapses += 1
            _logger.warning(
                "subscription %s had ended at the server: this client was silent for %g s, or the subscription was "
                "removed; it was made again, and publications in between are missed",
                self._request.name,
                self._lease_s,
            )

    async def end(self) -> None:
        """Removes the subscription. Never raises: if the server does not answer, the lease expires."""
        self._is_ended = True
        await self.stop()
        try:
            async with asyncio.timeout(END_S_MAX), self._exclusive:
                await self._connection.run(calls.remove(self._request.name), retries=Retries(within_s=END_S_MAX))
        except UnknownSubscription:
            pass
        except (LavantError, TimeoutError) as error:
            _logger.warning(
                "subscription %s could not be removed; its lease expires within %g s: %s",
                self._request.name,
                self._lease_s,
                error if str(error) else "the server does not answer",
            )

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self.renew()
            except LavantError as error:
                _logger.warning("the lease of subscription %s could not be renewed: %s", self._request.name, error)


async def end_all(leases: Iterable[Lease]) -> None:
    """Ends all leases at the same time, so that the timeout of a dead server is spent once."""
    await asyncio.gather(*(lease.end() for lease in leases))
