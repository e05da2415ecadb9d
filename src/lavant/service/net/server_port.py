"""The server's port with all its protocols.

connection ──┬── native protocol
(TLS)        ├── links of other brokers
             └── HTTP ──┬── /publish, /subscriptions, …    the HTTP interface
                        ├── /healthz, /readyz, /metrics    the last one on a port of its own, if configured
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

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.frames import LINK_PREFACE, PREFACE
from lavant.core.addresses import is_loopback
from lavant.core.errors import AccessDenied, LavantError, MissingComponent
from lavant.service.auth.browser_guard import BrowserGuard, HostList
from lavant.service.auth.keys import KeyRing
from lavant.service.aws.credentials import CredentialRing
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.delivery.registry import Deliveries
from lavant.service.engines.spark.settings import LIMITS as SPARK_LIMITS
from lavant.service.federation.connection import UnnamedBroker
from lavant.service.federation.links import FederationLinks
from lavant.service.http.application import PATHS, api_application
from lavant.service.http.context import ApiContext
from lavant.service.net.admission import ConnectionAdmission, Ticket
from lavant.service.net.descriptors import connections_allowed
from lavant.service.net.http_dispatch import OPERATIONS_PATHS, HttpApplication, Operations
from lavant.service.net.http_server.connection import HttpProtocols
from lavant.service.net.listener import Listener
from lavant.service.net.native import NativeProtocol
from lavant.service.net.protocol_detection import DetectingProtocol, Factory
from lavant.service.net.tls import Tls
from lavant.service.observability.counters import Meters
from lavant.service.observability.logs import RepeatedFault
from lavant.service.observability.metrics import FamiliesOf, Metrics
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.observability.process_metrics import ProcessMetrics
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.readiness import Readiness
from lavant.service.runtime.settings import ServeSettings
from lavant.service.storage.backups.source import open_backup
from lavant.service.storage.stores import JournalStore, RecordStore

if TYPE_CHECKING:
    from lavant.service.autoscaling.views import Resources

_logger = logging.getLogger(__name__)


class Files(NamedTuple):
    """Reloaded at SIGHUP: keys, credentials and the certificate."""

    keys: KeyRing
    credentials: CredentialRing
    tls: Tls | None = None


class ServerPort:
    """Listens while a server starts, serves clients once it is ready, and is closed before it stops.

    `health` returns why the server should be restarted, or None.
    """

    def __init__(
        self,
        settings: ServeSettings,
        broker: BrokerState,
        store: RecordStore,
        service: BrokerRuntime,
        files: Files,
        *,
        health: Callable[[], str | None],
        readiness: Readiness,
        metrics: Iterable[FamiliesOf],
        links: FederationLinks | None = None,
    ) -> None:
        self._links = links
        self._settings = settings
        self._broker = broker
        self._service = service
        self._files = files
        self._keys = files.keys
        self._readiness = readiness
        meters = Meters()
        to_private = settings.is_open or settings.webhooks_to_private_networks
        self._deliveries = Deliveries(service, to_private=to_private)
        self._context = ApiContext(service, self._keys, meters, self._deliveries)
        sqs = SqsApp(
            service.execute,
            replace(settings.sqs, salt=store.identity),
            credentials=files.credentials,
            unverified_bytes_max=settings.limits.unverified_bytes_max,
            audit=service.audit,
        )
        quotas = partial(self._keys.tenants.families, broker, settings.metrics.queues_max)
        process = ProcessMetrics(settings.data)
        own = (process.families, meters.families, self._deliveries.families, self._families, quotas)
        rendered = Metrics(broker.queues, store, service, (*own, *metrics), queues_max=settings.metrics.queues_max)
        may_see = partial(_may_see_metrics, settings.metrics.key, self._keys)
        operations = Operations(
            health=health, readiness=readiness.reason, metrics=rendered.text, may_see=may_see, remarks=self._remarks
        )
        application = HttpApplication(
            operations=operations,
            paths=OPERATIONS_PATHS - ({"/metrics"} if settings.metrics.port is not None else set()),
            api=api_application(self._context),
            api_paths=PATHS,
            sqs=sqs,
            readiness=readiness,
        )
        self._context.telemetry = settings.telemetry
        if isinstance(store, JournalStore) and settings.data is not None:
            self._context.open_backup = partial(open_backup, store.journal, settings.data)
        guard = BrowserGuard(HostList(settings.hosts), settings.allowed_origins)
        self._http = HttpProtocols(application, sqs, settings.limits, guard, readiness=readiness)
        self._operations = HttpProtocols(operations, None, settings.limits, guard)
        self._listeners: list[Listener] = []
        self._admissions: list[ConnectionAdmission] = []
        self.metrics_at: tuple[str, int] | None = None
        """Host and port of the metrics, if they have a port of their own."""

    def show_resources(self, view: Callable[[], Resources | None] | None) -> None:
        """Serve `/resources`, if there is a resource manager."""
        self._context.resources = view

    async def listen(self) -> tuple[str, int]:
        """Returns host and port. Clients are not served yet."""
        settings = self._settings
        prefaces: dict[bytes, Factory] = {PREFACE: self._native, LINK_PREFACE: self._link}
        protocol = partial(DetectingProtocol, prefaces, self._http, settings.limits.greeting_s_max, RepeatedFault())
        listener = Listener(protocol, self._admission(), self._files.tls)
        host, number = await self._listen(listener, settings.host, settings.port, "--port")
        metrics = settings.metrics
        if metrics.port is not None:
            # Scrapers on the same machine need no TLS.
            tls = None if is_loopback(metrics.host) else self._files.tls
            few = settings.limits.metrics_connections_max
            scrapers = Listener(
                self._operations, ConnectionAdmission(connections_max=few, unauthenticated_max=few), tls
            )
            self.metrics_at = await self._listen(scrapers, metrics.host, metrics.port, "--metrics-port")
        self._service.loop.add_signal_handler(signal.SIGHUP, self._reload)
        return host, number

    def start_deliveries(self) -> None:
        self._deliveries.start(self._broker.subscriptions)

    async def close(self) -> None:
        """End long polls and streams, and answer all requests."""
        for listener in self._listeners:
            listener.close()
        self._context.stopping.set()
        self._service.release()
        await self._deliveries.stop()
        await self._http.stop(self._settings.limits.stop_s_max)
        await self._operations.stop(self._settings.limits.stop_s_max)

    def _admission(self) -> ConnectionAdmission:
        limits, spark = self._settings.limits, self._settings.spark
        allowed = connections_allowed(limits, logs_max=0 if spark is None else SPARK_LIMITS.scopes_max)
        if allowed < limits.connections_max:
            _logger.warning(
                "at most %d connections instead of %d: the system limits open files (ulimit -n)",
                allowed,
                limits.connections_max,
            )
        admission = ConnectionAdmission(
            connections_max=allowed, unauthenticated_max=min(limits.unauthenticated_max, max(1, allowed // 2))
        )
        self._admissions.append(admission)
        return admission

    def _families(self) -> list[MetricFamily]:
        audit = self._service.audit
        return [
            *(family for admission in self._admissions for family in admission.families()),
            *(() if audit is None else audit.families()),
        ]

    def _remarks(self) -> list[str]:
        """Problems that are no reason to restart the server."""
        audit = self._service.audit
        return [] if audit is None or audit.file.fault is None else [audit.file.fault]

    async def _listen(self, listener: Listener, host: str, port: int, option: str) -> tuple[str, int]:
        try:
            address = await listener.open(host, port)
        except OSError as error:
            raise MissingComponent(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another {option}"
            ) from None
        self._listeners.append(listener)
        return address

    def _native(self, ticket: Ticket) -> asyncio.Protocol:
        return NativeProtocol(self._service, self._keys, self._readiness, ticket)

    def _link(self, ticket: Ticket) -> asyncio.Protocol:
        if self._links is None:
            return UnnamedBroker(ticket, self._settings.limits.greeting_s_max)
        return self._links.accept(ticket)

    def _reload(self) -> None:
        """SIGHUP: reload each file; an invalid one changes nothing.

        When this returns, no request is in progress for a principal that was removed or has other rights.
        """
        are_read = [self._reload_one(file) for file in self._files if file is not None]
        if all(are_read):
            _logger.info("SIGHUP: files of keys, credentials and certificates were read again")
        if self._service.audit is not None:
            self._service.audit.file.reopen()
        for connection in list(self._service.connections):
            connection.keys_changed()

    def _reload_one(self, file: KeyRing | CredentialRing | Tls) -> bool:
        try:
            file.read()
        except LavantError as error:
            _logger.warning("SIGHUP: %s; its previous contents stay in force", error)
            return False
        return True


def _may_see_metrics(metrics_key: str, keys: KeyRing, secret: str) -> bool:
    """Without a metrics key everybody may; with one, holders of that key and operators, who may see everything."""
    if not metrics_key or hmac.compare_digest(secret.encode(), metrics_key.encode()):
        return True
    try:
        return not keys.is_open and keys.principal(secret.encode()).is_operator
    except AccessDenied:
        return False
