"""Opens the links of `--join`, again and again: exponential back-off with jitter, one log line for each new reason."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from typing import TYPE_CHECKING

from lavant.core.addresses import Address
from lavant.service.federation.connection import LinkConnection

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks

CONNECT_S_MAX = 10.0
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
"""Between two attempts; it doubles with each that fails."""
HOST_SHOWN = 80
OPENING_S_MAX, OPENING_CHECK_S = 2.0, 0.005
"""How long the other links wait while one is opened."""

_logger = logging.getLogger(__name__)


class LinkDialer:
    """Keeps the link to one address open."""

    def __init__(self, links: FederationLinks, address: Address, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self.fault: str | None = "not connected yet"
        """Why there is no link; None if there is one."""
        self.neighbour = ""
        """The broker that answered last."""
        self._identity = ""
        """Of that broker, once the link was open."""
        self._links = links
        self._tls = tls if address.is_secure else None
        self._told: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link to {self.address}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._is_removed():
            try:
                async with self._links.opening:
                    connection = await self._connect()
                    await self._open(connection)
            except OSError as error:
                self._away(f"no broker answers at {self.address}: {_reason(error)}")
            except UnicodeError:
                self._away(f"{self.address.host[:HOST_SHOWN]!r} cannot be the name of a machine; correct this --join")
            else:
                await self._follow(connection)
                if connection.is_welcome:
                    pause_s = PAUSE_S
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        self.fault = f"{self.neighbour} was removed; to take it back, restart this broker with --join {self.address}"
        _logger.warning("%s", self.fault)

    def _is_removed(self) -> bool:
        """Whether an operator has removed the broker at this address since the link was open."""
        return self._identity in self._links.machine.state.removed

    async def _connect(self) -> LinkConnection:
        host, port, _ = self.address
        async with asyncio.timeout(CONNECT_S_MAX):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: LinkConnection(self._links, None, self.address), host, port, ssl=self._tls
            )
        return connection

    async def _open(self, connection: LinkConnection) -> None:
        """Open the link, and wait until the neighbour has told who is behind it, or for a while.

        Links of one broker are opened one after the other: two that would close a cycle must not be opened at once.
        """
        connection.on_welcome = self._up
        self._links.dialled(connection)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPENING_S_MAX):
                while not connection.ended.is_set() and not self._links.knows_behind(connection):
                    await asyncio.sleep(OPENING_CHECK_S)

    async def _follow(self, connection: LinkConnection) -> None:
        """Wait for the end of the connection."""
        try:
            await connection.ended.wait()
        except asyncio.CancelledError:
            connection.close()
            raise
        if connection.is_passing:
            self.fault = connection.reason
        else:
            where = f"{connection.peer} at {self.address}" if connection.neighbour else str(self.address)
            self._away(f"the link to {where} is down: {connection.reason}")

    def _up(self, connection: LinkConnection) -> None:
        self.neighbour = connection.neighbour
        known = self._links.machine.state.neighbours.get(self.neighbour)
        self._identity = "" if known is None else known.identity
        self.fault = None
        self._told.clear()

    def _away(self, fault: str) -> None:
        """Log each reason once until the link is up."""
        if fault not in self._told:
            _logger.warning("%s; trying again", fault)
        self._told.add(fault)
        self.fault = fault


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; give --join-ca-file"
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS: {error.reason or error}; join with lavant://"
    if isinstance(error, TimeoutError):
        return f"nothing was heard for {CONNECT_S_MAX:g} s"
    return error.strerror or str(error)
