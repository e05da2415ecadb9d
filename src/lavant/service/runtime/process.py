"""The process of `lavant serve`: recovery, start, signals, and orderly shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lavant import tracing
from lavant.broker.federation.machine import FederationMachine
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.queues.accounting.quotas import QueueLimits, Quotas
from lavant.broker.queues.machine import Queues
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.workflows.limits import JobLimits
from lavant.core.errors import InvalidValue
from lavant.core.kernels.cache import cache_state
from lavant.core.kernels.warmup import WarmupProgress
from lavant.service.auth.audit import AuditLog
from lavant.service.auth.keys import KeyRing
from lavant.service.auth.tenants import Tenants
from lavant.service.aws.credentials import CredentialRing
from lavant.service.engines.factory import DIRECTORY, engine_of
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.supervisor import SparkSupervisor
from lavant.service.federation.links import FederationLinks
from lavant.service.federation.settings import federation_config
from lavant.service.net.descriptors import raise_limit
from lavant.service.net.server_port import Files, ServerPort
from lavant.service.net.tls import Tls
from lavant.service.observability.metrics import FamiliesOf, figures_of, queue_names
from lavant.service.observability.request_spans import job_ended
from lavant.service.observability.telemetry import Telemetry, TelemetryFiles
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.clock import TimeKeeper
from lavant.service.runtime.ingest.ingest import Ingest
from lavant.service.runtime.kernels import ENCRYPTED, MODELS, PLAIN, compile_kernels, load_kernels
from lavant.service.runtime.memory import format_bytes, memory_limit
from lavant.service.runtime.readiness import Readiness
from lavant.service.runtime.settings import ACCEPT, ServeSettings
from lavant.service.storage.directory_errors import explained
from lavant.service.storage.stores import RecordStore, open_store

if TYPE_CHECKING:
    from lavant.service.autoscaling.autoscaler import Autoscaler
    from lavant.service.rabbitmq.bridge import RabbitMQBridge

_logger = logging.getLogger(__name__)
GARBAGE_THRESHOLD = 50_000
"""Messages are not tracked by the garbage collector, so rare collections of the rest cost nothing."""

SWITCH_S = 0.0005
"""The longest that the event loop waits for a matching thread to yield; Python's default of 5 ms is noticeable."""


PROGRESS_S = 5.0
"""Between two lines in the log about kernels that are compiled."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of a started server, and the size of its recovered state."""

    host: str
    port: int
    is_tls: bool
    metrics_at: tuple[str, int] | None
    """Host and port of the metrics, if they have a port of their own."""
    queues: int
    messages: int
    records: int
    """Records since the journal began."""


def run(
    settings: ServeSettings,
    on_started: Callable[[Started], None],
    on_progress: Callable[[WarmupProgress], None] = lambda progress: None,
) -> None:
    """Serve until a signal. Raises the error that ended the server, if one did."""
    tracing.configure("lavant")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, on_started, on_progress))


async def serve(
    settings: ServeSettings, on_started: Callable[[Started], None], on_progress: Callable[[WarmupProgress], None]
) -> None:
    """Serve until SIGTERM or SIGINT. Raises if the disk fails.

    `on_progress` reports kernels that are compiled first; `on_started` is called when clients are served.
    """
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    raise_limit()
    files = _files(settings)
    store, broker = await _recovered(settings)
    try:
        sizes = _sizes(broker.queues, store)
        telemetry = _telemetry(settings, broker)
        times = TimeKeeper(broker.queues.now_ms, settings.data, is_accepted=settings.clock_jump == ACCEPT)
        service = _service(settings, broker, store, times, files.keys.tenants.quotas, stopped)
    except BaseException:
        await store.close()
        raise
    if service.is_traced:
        broker.queues.watch_ends(job_ended)
    components = _Components.of(settings, broker, service)
    service.report_to(telemetry.events, *([] if components.resources is None else [components.resources.observers]))
    readiness = Readiness(lambda: _fault(service, components.spark))
    links = _links(settings, service, store, times, files.keys, readiness)
    port = ServerPort(
        settings,
        broker,
        store,
        service,
        files,
        health=lambda: _failure(service),
        readiness=readiness,
        metrics=[
            telemetry.families,
            times.families,
            *components.families(),
            *([] if links is None else [links.families]),
        ],
        links=links,
    )
    port.show_resources(None if components.resources is None else components.resources.view)
    telemetry.start()
    times.begin()
    try:
        host, number = await port.listen()
        _stop_at_signals(stopped)
        at = Started(host=host, port=number, is_tls=files.tls is not None, metrics_at=port.metrics_at, **sizes)
        if await _completed(_begin(service, components, links, port, readiness, at, on_progress), unless=stopped):
            on_started(at)
        await stopped
    finally:
        readiness.stop()
        await components.stop_resources()
        if links is not None:
            await links.stop()
        await port.close()
        await components.stop()
        await times.stop()
        await service.stop()
        telemetry.stop()


async def _begin(
    service: BrokerRuntime,
    components: _Components,
    links: FederationLinks | None,
    port: ServerPort,
    readiness: Readiness,
    at: Started,
    on_progress: Callable[[WarmupProgress], None],
) -> None:
    """Everything between listening and serving."""
    kernels = [PLAIN, ENCRYPTED] if components.resources is None else [PLAIN, ENCRYPTED, MODELS]
    if components.resources is None and links is None and service.ingest.can_scan:
        kernels_there = _kernels_in_background(kernels, service.ingest, readiness)
        await service.ingest.scan_until(asyncio.ensure_future(kernels_there))
    else:
        await _kernels_first(kernels, readiness, on_progress)
        readiness.starts_with("reading subscriptions")
        await service.ingest.load()
    service.begin()
    if components.spark is not None:
        await components.spark.start()
    port.start_deliveries()
    if components.bridge is not None:
        components.bridge.start()
    readiness.begin()
    if links is not None:
        links.start(_url(_reachable(at.host), at.port, is_tls=at.is_tls))
    if components.resources is not None:
        await components.resources.start(_url(at.host, at.port, is_tls=at.is_tls))


async def _completed(work: Coroutine[Any, Any, None], *, unless: asyncio.Future[None]) -> bool:
    """Returns whether the work was completed; it is cancelled if `unless` comes first."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, unless), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return False


class _Components(NamedTuple):
    """Optional components of a server."""

    spark: SparkSupervisor | None
    resources: Autoscaler | None
    bridge: RabbitMQBridge | None

    @classmethod
    def of(cls, settings: ServeSettings, broker: BrokerState, service: BrokerRuntime) -> _Components:
        resources = _autoscaler(settings, broker, service)
        return cls(_spark(settings, service), resources, _bridge(settings, service, resources))

    def families(self) -> list[FamiliesOf]:
        return [each.families for each in self if each is not None]

    async def stop_resources(self) -> None:
        if self.resources is not None:
            await self.resources.stop()

    async def stop(self) -> None:
        if self.bridge is not None:
            await self.bridge.stop()
        if self.spark is not None:
            await self.spark.stop()


async def _recovered(settings: ServeSettings) -> tuple[RecordStore, BrokerState]:
    """The store of the data directory and the recovered state."""
    with explained(settings.data):
        store = open_store(settings.data, settings.journal)
        try:
            recovered = store.recovered
            return store, replay(recovered.chunks, recovered.records, after=recovered.position)
        except BaseException:
            await store.close()
            raise


def _files(settings: ServeSettings) -> Files:
    tenants = Tenants(settings.quota)
    return Files(
        KeyRing(settings.keys_file, is_closed=not settings.is_open, tenants=tenants),
        CredentialRing(settings.credentials_file, is_closed=not settings.is_open, tenants=tenants),
        None if settings.tls is None else Tls(settings.tls),
    )


def _service(
    settings: ServeSettings,
    broker: BrokerState,
    store: RecordStore,
    times: TimeKeeper,
    quotas: Quotas,
    stopped: asyncio.Future[None],
) -> BrokerRuntime:
    broker.queues.limits, broker.queues.job_limits = QueueLimits(memory_max=_memory_max(settings, broker)), JobLimits()
    broker.subscriptions.limits = SubscriptionLimits()
    broker.queues.usages.quotas = quotas
    _tame_garbage_collector()
    sys.setswitchinterval(SWITCH_S)
    server = BrokerMachine(broker, position=store.position, acknowledge_early=settings.acknowledge_early)

    def fail(error: Exception) -> None:
        if not stopped.done():
            _logger.error("the server stops: %s", error)
            stopped.set_exception(error)

    engine = engine_of(settings.spark, settings.data, broker.subscriptions.log_offsets, store.identity)
    return BrokerRuntime(
        server, engine, store, times.clock, limits=settings.limits, on_failed=fail, audit=_audit(settings)
    )


def _links(
    settings: ServeSettings,
    service: BrokerRuntime,
    store: RecordStore,
    times: TimeKeeper,
    keys: KeyRing,
    readiness: Readiness,
) -> FederationLinks | None:
    if settings.federation is None:
        return None
    config = federation_config(settings.federation, settings.limits, identity=store.identity.hex())
    machine = FederationMachine(service.server, config)
    return FederationLinks(service, machine, settings.federation, times.clock, keys=keys, readiness=readiness)


def _memory_max(settings: ServeSettings, broker: BrokerState) -> int:
    """Logs the limit, its origin, and warnings."""
    limit = memory_limit(settings.memory_max, compacts=settings.data is not None)
    _logger.info("memory for messages, queues, jobs and subscriptions: %s", limit)
    if limit.warning:
        _logger.warning("%s", limit.warning)
    held = broker.queues.memory_held
    if held > limit.size_bytes:
        _logger.warning(
            "the state takes %s, which is over the limit: nothing new is accepted until there is less",
            format_bytes(held),
        )
    return limit.size_bytes


def _audit(settings: ServeSettings) -> AuditLog | None:
    return None if settings.audit_log is None else AuditLog(settings.audit_log, is_data=settings.audit_data)


def _spark(settings: ServeSettings, service: BrokerRuntime) -> SparkSupervisor | None:
    engine = service.engine
    if settings.spark is None or settings.data is None or not isinstance(engine, SparkEngine):
        return None
    return SparkSupervisor(engine, service.ingest, settings.spark, settings.data / DIRECTORY)


def _bridge(settings: ServeSettings, service: BrokerRuntime, resources: Autoscaler | None) -> RabbitMQBridge | None:
    of_file = None if resources is None else resources.rabbitmq
    wanted = [each for each in (settings.rabbitmq, of_file) if each is not None]
    if not wanted:
        return None
    if len({each.url for each in wanted}) > 1:
        raise InvalidValue("--rabbitmq and the url of [workers] in the resources file name different servers; give one")
    from lavant.service.rabbitmq.bridge import RabbitMQBridge  # noqa: PLC0415  its library is an extra

    return RabbitMQBridge(service, wanted[-1])


def _autoscaler(settings: ServeSettings, broker: BrokerState, service: BrokerRuntime) -> Autoscaler | None:
    if settings.resources is None:
        return None
    from lavant.service.autoscaling.autoscaler import Autoscaler  # noqa: PLC0415  it loads the models, which take a while

    return Autoscaler(settings.resources, service, broker.queues)


def _url(host: str, port: int, *, is_tls: bool) -> str:
    """The URL for workers on this machine; a server that listens at all addresses is reached at the local one."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"lavant{'s' if is_tls else ''}://{f'[{reached}]' if ':' in reached else reached}:{port}"


def _reachable(host: str) -> str:
    """For clients on other machines: a server that listens at all addresses is reached by the name of its machine."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host


def _telemetry(settings: ServeSettings, broker: BrokerState) -> Telemetry:
    if settings.telemetry is None:
        return Telemetry(broker.queues)
    try:
        files = TelemetryFiles(settings.telemetry, start_s=int(time.time()), keep=settings.telemetry_keep)
    except OSError as error:
        raise InvalidValue(f"telemetry cannot be kept in {settings.telemetry}: {error.strerror}") from None
    return Telemetry(broker.queues, files)


async def _kernels_first(
    kernels: Sequence[str], readiness: Readiness, on_progress: Callable[[WarmupProgress], None]
) -> None:
    """Load kernels before the server is ready. If they must be compiled, report progress in `/readyz`."""

    def tell(progress: WarmupProgress) -> None:
        readiness.starts_with(str(progress))
        on_progress(progress)

    readiness.starts_with("loading kernels")
    if not await load_kernels(kernels):
        await compile_kernels(kernels, tell)


async def _kernels_in_background(kernels: Sequence[str], ingest: Ingest, readiness: Readiness) -> None:
    """Load kernels while the server serves. If they must be compiled, report progress in the log; while something waits
    for that, the server counts as starting."""
    told_s, doing, is_awaited = -math.inf, "", False

    def tell(progress: WarmupProgress) -> None:
        nonlocal told_s, doing
        doing = str(progress)
        if is_awaited:
            readiness.starts_with(doing)
        if time.monotonic() >= told_s + PROGRESS_S:
            told_s = time.monotonic()
            _logger.info("%s; until then every publication is compared with every filter", progress)

    def awaited(now: bool) -> None:
        nonlocal is_awaited
        is_awaited = now
        if doing:
            readiness.starts_with(doing) if now else readiness.begin()

    ingest.kernels.on_awaited = awaited
    if await load_kernels(kernels):
        return
    problem = cache_state().problem
    if problem is not None:
        _logger.warning("kernels are compiled again at each start: %s", problem)
    await compile_kernels(kernels, tell)
    _logger.info("kernels are compiled: publications are matched by indexes from now on")


def _failure(service: BrokerRuntime) -> str | None:
    return "the server has failed and stops" if service.has_failed else None


def _fault(service: BrokerRuntime, spark: SparkSupervisor | None) -> str | None:
    failure = _failure(service)
    return spark.fault() if failure is None and spark is not None else failure


def _sizes(queues: Queues, store: RecordStore) -> dict[str, int]:
    held = [figures_of(queues, name) for name in queue_names(queues)]
    messages = sum(figures.visible + figures.in_flight + figures.delayed for figures in held)
    return {"queues": len(held), "messages": messages, "records": store.position}


def _stop_at_signals(stopped: asyncio.Future[None]) -> None:
    """The first signal shuts down in order; the second ends the process at once, as by default."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _tame_garbage_collector() -> None:
    gc.collect()
    gc.freeze()  # the recovered state stays: exclude it from collections
    gc.set_threshold(GARBAGE_THRESHOLD)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop, if installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop
