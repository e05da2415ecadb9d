"""What clients see of a server: one port, and everything that is spoken there.

connection ──┬── compact protocol
(TLS)        └── HTTP ──┬── /publish, /subscriptions, …    the HTTP interface
                        ├── /healthz, /metrics
                        └── everything else                SQS
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from lavant.broker.serving.broker import Broker
from lavant.core.errors import LavantError, MissingComponent
from lavant.service.api import Desk, api_application
from lavant.service.api.application import PATHS
from lavant.service.api.attaching import remove_ephemeral
from lavant.service.compact import CompactProtocol
from lavant.service.http import HttpApplication, HttpProtocols
from lavant.service.keys import KeyRing
from lavant.service.meters import Meters
from lavant.service.metrics import FamiliesOf, Metrics
from lavant.service.server import Service
from lavant.service.settings import ServeSettings
from lavant.service.sniffing import SniffingProtocol
from lavant.service.sqs import SqsApp
from lavant.service.sqs.credentials import CredentialRing
from lavant.service.storage.stores import Store
from lavant.service.tls import HANDSHAKE_S_MAX, Tls
from lavant.service.webhooks import Webhooks

BACKLOG = 1024

if TYPE_CHECKING:
    from lavant.service.resources.views import Resources

_logger = logging.getLogger(__name__)


class Files(NamedTuple):
    """Those that are read again at SIGHUP: who may come in, and the certificate."""

    keys: KeyRing
    credentials: CredentialRing
    tls: Tls | None = None


class Port:
    """Opened when a server is ready, closed before it stops. `health` says what is wrong, if something is."""

    def __init__(
        self,
        settings: ServeSettings,
        broker: Broker,
        store: Store,
        service: Service,
        files: Files,
        *,
        health: Callable[[], str | None],
        metrics: Iterable[FamiliesOf],
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._service = service
        self._files = files
        self._keys = files.keys
        meters = Meters()
        self._desk = Desk(service, self._keys, meters)
        to_private = settings.is_open or settings.webhooks_to_private_networks
        self._webhooks = Webhooks(service, meters, to_private=to_private)
        sqs = SqsApp(service.execute, replace(settings.sqs, salt=store.identity), credentials=files.credentials)
        application = HttpApplication(
            health=health,
            metrics=Metrics(broker.queues, store, service, (meters.families, *metrics)).text,
            api=api_application(self._desk),
            api_paths=PATHS,
            sqs=sqs,
        )
        self._http = HttpProtocols(application, sqs, settings.limits)
        self._listener: asyncio.Server | None = None

    def show_resources(self, view: Callable[[], Resources | None] | None) -> None:
        """At `/resources`, if there is a resource manager."""
        self._desk.resources = view

    async def open(self) -> tuple[str, int]:
        """Where it listens."""
        await remove_ephemeral(self._broker, self._service)
        self._webhooks.start(self._broker.subscriptions)
        self._listener = await self._listen()
        self._service.loop.add_signal_handler(signal.SIGHUP, self._read_again)
        host, number = self._listener.sockets[0].getsockname()[:2]
        return host, number

    async def close(self) -> None:
        """Whoever waits is told that nothing came, streams end, and what was asked is answered."""
        if self._listener is not None:
            self._listener.close()
        self._desk.stopping.set()
        self._service.release()
        await self._webhooks.stop()
        await self._http.stop(self._settings.limits.stop_s_max)

    async def _listen(self) -> asyncio.Server:
        settings, tls = self._settings, self._files.tls
        try:
            return await self._service.loop.create_server(
                lambda: SniffingProtocol(self._compact, self._http, settings.limits.greeting_s_max),
                settings.host,
                settings.port,
                backlog=BACKLOG,
                ssl=None if tls is None else tls.context,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_S_MAX,
            )
        except OSError as error:
            raise MissingComponent(
                f"cannot listen at {settings.host}:{settings.port}: {error.strerror or error}; choose another --port"
            ) from None

    def _compact(self) -> asyncio.Protocol:
        return CompactProtocol(self._service, self._keys)

    def _read_again(self) -> None:
        """SIGHUP: take what each file holds now; what one holds that is of no use changes nothing.

        When this returns, nothing is under way any more for a principal that was removed or has other rights.
        """
        for file in self._files:
            if file is not None:
                self._read_one(file)
        for connection in list(self._service.connections):
            connection.keys_changed()

    def _read_one(self, file: KeyRing | CredentialRing | Tls) -> None:
        try:
            file.read()
        except LavantError as error:
            _logger.warning("%s; what it said before stays in force", error)
