"""`lavant serve` as a process: recovery, the port, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from lavant.broker.queues.hub import Queues
from lavant.broker.queues.limits import HubLimits
from lavant.broker.serving.broker import Broker
from lavant.broker.serving.replay import replay
from lavant.broker.serving.server import BrokerServer
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.workflows import JobLimits
from lavant.core.errors import InvalidValue, LavantError, MissingComponent
from lavant.service.clock import Clock
from lavant.service.compact import CompactProtocol
from lavant.service.engines.choosing import DIRECTORY, engine_of
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.settings import SparkSettings
from lavant.service.engines.spark.side import SparkSide
from lavant.service.http import HttpApplication, HttpProtocols
from lavant.service.keys import KeyRing
from lavant.service.limits import LIMITS, ServiceLimits
from lavant.service.metrics import Metrics, figures_of, queue_names
from lavant.service.server import Service
from lavant.service.sniffing import SniffingProtocol
from lavant.service.sqs import SqsApp, SqsSettings
from lavant.service.storage.stores import Store, open_store
from lavant.service.tls import HANDSHAKE_S_MAX, Tls, TlsFiles

BACKLOG = 1024
GARBAGE_THRESHOLD = 50_000
"""Messages are not looked at by the garbage collector; looking less often at the rest costs nothing."""

SWITCH_S = 0.0005
"""How long the event loop waits at most for a thread that matches to let it go on; Python's own 5 ms are felt."""

_logger = logging.getLogger(__name__)


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is told when it starts."""

    port: int
    """0 takes one that is free."""
    host: str = "127.0.0.1"
    data: Path | None = None
    """Where messages are kept; without, in memory only."""
    acknowledge_early: bool = False
    credentials: Mapping[str, str] | None = None
    """Of SQS clients: secrets by access key."""
    keys_file: Path | None = None
    """Of Lavant's own clients and those of the HTTP interface."""
    tls: TlsFiles | None = None
    spark: SparkSettings | None = None
    """With them publications are matched on Spark, without in this process."""
    sqs: SqsSettings = SqsSettings()
    """All but the salt, which belongs to what is stored."""
    limits: ServiceLimits = LIMITS

    def __post_init__(self) -> None:
        is_open = self.keys_file is None or self.credentials is None
        if is_open and not _is_loopback(self.host):
            raise InvalidValue(
                f"the server would listen at {self.host}, where other machines reach it, and not everybody would have "
                "to prove who they are; give --keys-file and --credentials-file, or stay with --host 127.0.0.1"
            )


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and what it found when it started."""

    host: str = ""
    port: int = 0
    is_tls: bool = False
    queues: int
    messages: int
    records: int
    """In the journal, since it began."""


def run(settings: ServeSettings, on_started: Callable[[Started], None]) -> None:
    """Serve until a signal says to stop. Raises the error that made it stop, if it was one."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, on_started))


async def serve(settings: ServeSettings, on_started: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or SIGINT, or until the disk fails; then that is raised."""
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _allow_many_files()
    keys, tls = KeyRing(settings.keys_file), None if settings.tls is None else Tls(settings.tls)
    store = open_store(settings.data)
    try:
        broker = replay(store.recovered.chunks, store.recovered.records)
        found = _found(broker.queues, store)
        service = _service(settings, broker, store, stopped)
    except BaseException:
        await store.close()
        raise
    spark = _spark_side(settings, service)
    application = _application(settings, broker.queues, store, service, spark)
    http = HttpProtocols(application, settings.limits.connections_max)
    try:
        await service.access.load()
        if spark is not None:
            await spark.start()
        listener = await _listen(settings, service, http, keys, tls)
        _stop_at_signals(stopped)
        _read_again_at_signal(service, keys, tls)
        host, port = listener.sockets[0].getsockname()[:2]
        on_started(msgspec.structs.replace(found, host=host, port=port, is_tls=tls is not None))
        try:
            await stopped
        finally:
            listener.close()
    finally:
        service.release()
        await http.stop(settings.limits.stop_s_max)
        if spark is not None:
            await spark.stop()
        await service.stop()


def _service(settings: ServeSettings, broker: Broker, store: Store, stopped: asyncio.Future[None]) -> Service:
    broker.queues.limits, broker.queues.job_limits = HubLimits(), JobLimits()
    broker.subscriptions.limits = SubscriptionLimits()
    _tame_garbage_collector()
    sys.setswitchinterval(SWITCH_S)
    server = BrokerServer(broker, position=store.position, acknowledge_early=settings.acknowledge_early)

    def fail(error: Exception) -> None:
        if not stopped.done():
            stopped.set_exception(error)

    engine = engine_of(settings.spark, settings.data, broker.subscriptions.lanes)
    return Service(server, engine, store, Clock(broker.queues.now_ms), limits=settings.limits, on_failed=fail)


def _spark_side(settings: ServeSettings, service: Service) -> SparkSide | None:
    engine = service.engine
    if settings.spark is None or settings.data is None or not isinstance(engine, SparkEngine):
        return None
    return SparkSide(engine, service.access, settings.spark, settings.data / DIRECTORY)


async def _listen(
    settings: ServeSettings, service: Service, http: HttpProtocols, keys: KeyRing, tls: Tls | None
) -> asyncio.Server:
    limits = settings.limits

    def compact() -> asyncio.Protocol:
        return CompactProtocol(service, keys)

    def protocol() -> asyncio.Protocol:
        return SniffingProtocol(compact, http, limits.greeting_s_max)

    try:
        return await service.loop.create_server(
            protocol,
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


def _application(
    settings: ServeSettings, queues: Queues, store: Store, service: Service, spark: SparkSide | None
) -> HttpApplication:
    sqs = msgspec.structs.replace(settings.sqs, salt=store.identity)
    return HttpApplication(
        health=lambda: _fault(service, spark),
        metrics=Metrics(queues, store, service, () if spark is None else (spark.families,)).text,
        sqs=SqsApp(service.execute, sqs, credentials=settings.credentials),
    )


def _fault(service: Service, spark: SparkSide | None) -> str | None:
    if service.has_failed:
        return "the server has failed and stops"
    return None if spark is None else spark.fault()


def _found(queues: Queues, store: Store) -> Started:
    held = [figures_of(queues, name) for name in queue_names(queues)]
    messages = sum(figures.visible + figures.in_flight + figures.delayed for figures in held)
    return Started(queues=len(held), messages=messages, records=store.position)


def _stop_at_signals(stopped: asyncio.Future[None]) -> None:
    """The first asks for an orderly end; the second ends the process at once, as it would without this."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _read_again_at_signal(service: Service, keys: KeyRing, tls: Tls | None) -> None:
    """SIGHUP: take what the files of keys and certificates hold now; if that is of no use, go on as before."""

    def read_again() -> None:
        try:
            keys.read()
            if tls is not None:
                tls.read()
        except LavantError as error:
            _logger.warning("%s; everything stays as it was", error)
        for connection in list(service.connections):
            connection.keys_changed()

    service.loop.add_signal_handler(signal.SIGHUP, read_again)


def _tame_garbage_collector() -> None:
    gc.collect()
    gc.freeze()  # what was recovered is there to stay: it need not be looked at again and again
    gc.set_threshold(GARBAGE_THRESHOLD)


def _allow_many_files() -> None:
    """As many connections as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_loopback(host: str) -> bool:
    """
    >>> [_is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "queues.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop
