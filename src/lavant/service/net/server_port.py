"""What clients see of a server: one port, and everything that is spoken there.

connection ──┬── compact protocol
(TLS)        └── HTTP ──┬── /publish, /subscriptions, …    the HTTP interface
                        ├── /healthz, /readyz, /metrics    the latter on a port of its own, if there is one
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
from lavant.core.errors import AccessDenied, LavantError, MissingComponent
from lavant.service.auth.browser_guard import BrowserGuard, HostList
from lavant.service.auth.keys import KeyRing
from lavant.service.aws.credentials import CredentialRing
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.delivery.webhooks import Webhooks
from lavant.service.engines.spark.settings import LIMITS as SPARK_LIMITS
from lavant.service.http.application import PATHS, api_application
from lavant.service.http.context import ApiContext
from lavant.service.net.admission import Admission, Ticket
from lavant.service.net.descriptors import connections_allowed
from lavant.service.net.http_dispatch import OPERATIONS_PATHS, HttpApplication, Operations
from lavant.service.net.http_server.connection import HttpProtocols
from lavant.service.net.listener import Listener
from lavant.service.net.native import NativeProtocol
from lavant.service.net.protocol_detection import DetectingProtocol
from lavant.service.net.tls import Tls
from lavant.service.observability.counters import Meters
from lavant.service.observability.metrics import FamiliesOf, Metrics
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.readiness import Readiness
from lavant.service.runtime.settings import ServeSettings, is_loopback
from lavant.service.storage.stores import RecordStore

if TYPE_CHECKING:
    from lavant.service.autoscaling.views import Resources

_logger = logging.getLogger(__name__)


class Files(NamedTuple):
    """Those that are read again at SIGHUP: who may come in, and the certificate."""

    keys: KeyRing
    credentials: CredentialRing
    tls: Tls | None = None


class ServerPort:
    """Listens while a server starts, serves clients from when it is ready, and is closed before it stops.

    `health` says why the server had better be started again, if it is so.
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
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._service = service
        self._files = files
        self._keys = files.keys
        self._readiness = readiness
        meters = Meters()
        self._desk = ApiContext(service, self._keys, meters)
        to_private = settings.is_open or settings.webhooks_to_private_networks
        self._webhooks = Webhooks(service, meters, to_private=to_private)
        sqs = SqsApp(
            service.execute,
            replace(settings.sqs, salt=store.identity),
            credentials=files.credentials,
            unverified_bytes_max=settings.limits.unverified_bytes_max,
            audit=service.audit,
        )
        quotas = partial(self._keys.tenants.families, broker, settings.metrics.queues_max)
        families: tuple[FamiliesOf, ...] = (meters.families, self._families, quotas, *metrics)
        shown = Metrics(broker.queues, store, service, families, queues_max=settings.metrics.queues_max)
        may_see = partial(_may_see_metrics, settings.metrics.key, self._keys)
        operations = Operations(
            health=health, readiness=readiness.reason, metrics=shown.text, may_see=may_see, remarks=self._remarks
        )
        application = HttpApplication(
            operations=operations,
            paths=OPERATIONS_PATHS - ({"/metrics"} if settings.metrics.port is not None else set()),
            api=api_application(self._desk),
            api_paths=PATHS,
            sqs=sqs,
            readiness=readiness,
        )
        guard = BrowserGuard(HostList(settings.hosts), settings.allowed_origins)
        self._http = HttpProtocols(application, sqs, settings.limits, guard, readiness=readiness)
        self._operations = HttpProtocols(operations, None, settings.limits, guard)
        self._listeners: list[Listener] = []
        self._admissions: list[Admission] = []
        self.metrics_at: tuple[str, int] | None = None
        """Host and port of the metrics, if they have their own."""

    def show_resources(self, view: Callable[[], Resources | None] | None) -> None:
        """At `/resources`, if there is a resource manager."""
        self._desk.resources = view

    async def listen(self) -> tuple[str, int]:
        """Where it listens. Clients are not served yet."""
        settings = self._settings
        protocol = partial(DetectingProtocol, self._compact, self._http, settings.limits.greeting_s_max)
        listener = Listener(protocol, self._admission(), self._files.tls)
        host, number = await self._listen(listener, settings.host, settings.port, "--port")
        metrics = settings.metrics
        if metrics.port is not None:
            # Scrapers on the same machine need no certificate for it.
            tls = None if is_loopback(metrics.host) else self._files.tls
            few = settings.limits.metrics_connections_max
            scrapers = Listener(self._operations, Admission(connections_max=few, unauthenticated_max=few), tls)
            self.metrics_at = await self._listen(scrapers, metrics.host, metrics.port, "--metrics-port")
        self._service.loop.add_signal_handler(signal.SIGHUP, self._read_again)
        return host, number

    def start_webhooks(self) -> None:
        self._webhooks.start(self._broker.subscriptions)

    async def close(self) -> None:
        """Whoever waits is told that nothing came, streams end, and what was asked is answered."""
        for listener in self._listeners:
            listener.close()
        self._desk.stopping.set()
        self._service.release()
        await self._webhooks.stop()
        await self._http.stop(self._settings.limits.stop_s_max)
        await self._operations.stop(self._settings.limits.stop_s_max)

    def _admission(self) -> Admission:
        limits, spark = self._settings.limits, self._settings.spark
        allowed = connections_allowed(limits, lanes_max=0 if spark is None else SPARK_LIMITS.lanes_max)
        if allowed < limits.connections_max:
            _logger.warning(
                "at most %d connections, and not %d: the system lets this process open no more files (ulimit -n)",
                allowed,
                limits.connections_max,
            )
        admission = Admission(
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
        """What is wrong, and no reason to start the server again."""
        audit = self._service.audit
        return [] if audit is None or audit.file.fault is None else [audit.file.fault]

    async def _listen(self, listener: Listener, host: str, port: int, option: str) -> tuple[str, int]:
        try:
            place = await listener.open(host, port)
        except OSError as error:
            raise MissingComponent(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another {option}"
            ) from None
        self._listeners.append(listener)
        return place

    def _compact(self, ticket: Ticket) -> asyncio.Protocol:
        return NativeProtocol(self._service, self._keys, self._readiness, ticket)

    def _read_again(self) -> None:
        """SIGHUP: take what each file holds now; what one holds that is of no use changes nothing.

        When this returns, nothing is under way any more for a principal that was removed or has other rights.
        """
        for file in self._files:
            if file is not None:
                self._read_one(file)
        if self._service.audit is not None:
            self._service.audit.file.reopen()
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
