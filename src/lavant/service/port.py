"""What clients see of a server: one port, and everything that is spoken there.

connection ──┬── compact protocol
(TLS)        └── HTTP ──┬── /publish, /subscriptions, …    the HTTP interface
                        ├── /healthz, /metrics             the latter on a port of its own, if there is one
                        └── everything else                SQS
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from lavant.broker.serving.broker import Broker
from lavant.core.errors import AccessDenied, LavantError, MissingComponent
from lavant.service.api import Desk, api_application
from lavant.service.api.application import PATHS
from lavant.service.api.attaching import remove_ephemeral
from lavant.service.compact import CompactProtocol
from lavant.service.http import OPERATIONS_PATHS, HttpApplication, HttpProtocols, Operations
from lavant.service.keys import KeyRing
from lavant.service.meters import Meters
from lavant.service.metrics import FamiliesOf, Metrics
from lavant.service.server import Service
from lavant.service.settings import ServeSettings, is_loopback
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
        shown = Metrics(
            broker.queues, store, service, (meters.families, *metrics), queues_max=settings.metrics.queues_max
        )
        may_see = partial(_may_see_metrics, settings.metrics.key, self._keys)
        operations = Operations(health=health, metrics=shown.text, may_see=may_see)
        application = HttpApplication(
            operations=operations,
            paths=OPERATIONS_PATHS - ({"/metrics"} if settings.metrics.port is not None else set()),
            api=api_application(self._desk),
            api_paths=PATHS,
            sqs=sqs,
        )
        self._http = HttpProtocols(application, sqs, settings.limits)
        self._operations = HttpProtocols(operations, None, settings.limits)
        self._listeners: list[asyncio.Server] = []
        self.metrics_at: tuple[str, int] | None = None
        """Host and port of the metrics, if they have their own."""

    def show_resources(self, view: Callable[[], Resources | None] | None) -> None:
        """At `/resources`, if there is a resource manager."""
        self._desk.resources = view

    async def open(self) -> tuple[str, int]:
        """Where it listens."""
        await remove_ephemeral(self._broker, self._service)
        self._webhooks.start(self._broker.subscriptions)
        settings = self._settings
        protocol = partial(SniffingProtocol, self._compact, self._http, settings.limits.greeting_s_max)
        host, number = await self._listen(protocol, settings.host, settings.port, "--port", self._files.tls)
        metrics = settings.metrics
        if metrics.port is not None:
            # Scrapers on the same machine need no certificate for it.
            tls = None if is_loopback(metrics.host) else self._files.tls
            self.metrics_at = await self._listen(self._operations, metrics.host, metrics.port, "--metrics-port", tls)
        self._service.loop.add_signal_handler(signal.SIGHUP, self._read_again)
        return host, number

    async def close(self) -> None:
        """Whoever waits is told that nothing came, streams end, and what was asked is answered."""
        for listener in self._listeners:
            listener.close()
        self._desk.stopping.set()
        self._service.release()
        await self._webhooks.stop()
        await self._http.stop(self._settings.limits.stop_s_max)
        await self._operations.stop(self._settings.limits.stop_s_max)

    async def _listen(
        self, protocol: Callable[[], asyncio.Protocol], host: str, port: int, option: str, tls: Tls | None
    ) -> tuple[str, int]:
        try:
            listener = await self._service.loop.create_server(
                protocol,
                host,
                port,
                backlog=BACKLOG,
                ssl=None if tls is None else tls.context,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_S_MAX,
            )
        except OSError as error:
            raise MissingComponent(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another {option}"
            ) from None
        self._listeners.append(listener)
        host, number = listener.sockets[0].getsockname()[:2]
        return host, number

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


def _may_see_metrics(wanted: str, keys: KeyRing, secret: str) -> bool:
    """Everybody, if no key is wanted; or else whoever shows that key, and operators, who may see everything anyway."""
    if not wanted or hmac.compare_digest(secret.encode(), wanted.encode()):
        return True
    try:
        return not keys.is_open and keys.principal(secret.encode()).is_operator
    except AccessDenied:
        return False
