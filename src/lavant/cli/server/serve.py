"""`lavant serve`: run a server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.broker.federation.routes.roles import BrokerRole
from lavant.cli.common import counted, report
from lavant.cli.server.config_file import take_config
from lavant.cli.spark import Archive, Conf, DriverHost, settings_in
from lavant.core.addresses import QUEUES_PORT
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.service.engines.spark.settings import SparkSettings
    from lavant.service.federation.settings import FederationSettings
    from lavant.service.runtime.limits import ServiceLimits
    from lavant.service.runtime.process import Started
    from lavant.service.runtime.settings import ServeSettings


_SAME_NAME = (
    "port",
    "host",
    "data",
    "acknowledge_early",
    "keys_file",
    "credentials_file",
    "webhooks_to_private_networks",
    "audit_log",
    "audit_data",
    "telemetry",
    "resources",
    "clock_jump",
)
"""Options that are settings of the same name and value."""
_OF_FEDERATION = (
    "join",
    "join_key",
    "join_ca_file",
    "role",
    "require_advertisements",
    "client_address",
    "balance",
    "bandwidth",
    "matching_rate",
)
"""Options that need a name."""


class EngineName(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class ClockJump(StrEnum):
    HOLD = "hold"
    ACCEPT = "accept"


def _quota_option(what: str) -> Any:
    return typer.Option(min=0, help=f"quota per namespace: {what}; the keys file can override it")


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=take_config,
            is_eager=True,
            envvar="LAVANT_CONFIG",
            help="configuration file (TOML); see `lavant config`",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="data directory; created if missing")] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="keep everything in memory only: a restart loses it")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port for all protocols; 0 chooses a free one")
    ] = QUEUES_PORT,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    public_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="host name that HTTP clients use for the server, besides localhost and IP addresses: queues.example, "
            "queues.example:7324 or *.queues.example; repeatable",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="origin of web pages that may use the server (CORS): https://app.example; repeatable",
        ),
    ] = None,
    acknowledge_early: Annotated[
        bool,
        typer.Option(
            "--acknowledge-early",
            help="confirm acknowledgements before they are durable: faster, but a crash may redeliver some messages",
        ),
    ] = False,
    credentials_file: Annotated[
        Path | None,
        typer.Option(help="credentials of SQS clients; without --keys-file, other clients are refused"),
    ] = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(help="API keys of all other clients; without --credentials-file, SQS clients are refused"),
    ] = None,
    namespace_queues_max: Annotated[int | None, _quota_option("queues")] = None,
    namespace_bytes_max: Annotated[int | None, _quota_option("bytes of messages")] = None,
    namespace_subscriptions_max: Annotated[int | None, _quota_option("subscriptions")] = None,
    namespace_connections_max: Annotated[int | None, _quota_option("connections")] = None,
    namespace_streams_max: Annotated[int | None, _quota_option("server-sent event streams and WebSockets")] = None,
    namespace_requests_per_s: Annotated[float | None, _quota_option("requests per second")] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="certificate chain (PEM), the server certificate first")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="private key (PEM), without a password")] = None,
    engine: Annotated[
        EngineName, typer.Option(help="engine that matches publications: in this process, or on Spark")
    ] = EngineName.LOCAL,
    master: Annotated[
        str | None,
        typer.Option(help="Spark master: local[N], or spark://HOST:PORT of a cluster whose executors follow the load"),
    ] = None,
    driver_host: DriverHost = None,
    archive: Archive = None,
    conf: Conf = None,
    hosts_max: Annotated[
        int | None, typer.Option(min=1, help="executors, or tasks per batch, at most; 8 by default")
    ] = None,
    webhooks_to_private_networks: Annotated[
        bool,
        typer.Option(
            "--webhooks-to-private-networks",
            help="allow webhooks to this machine and private networks even if keys are required",
        ),
    ] = False,
    audit_log: Annotated[
        Path | None,
        typer.Option(help="file for a JSON line per administrative command and per denied command"),
    ] = None,
    audit_data: Annotated[
        bool, typer.Option("--audit-data", help="also log publishing, sending, receiving and tasks")
    ] = False,
    telemetry: Annotated[
        Path | None, typer.Option(help="directory for telemetry files (Parquet); by default there is only /metrics")
    ] = None,
    telemetry_keep: Annotated[
        int | None, typer.Option(min=1, help="telemetry files to keep; older ones are deleted; 1000 by default")
    ] = None,
    metrics_key: Annotated[
        str | None,
        typer.Option(
            envvar="LAVANT_METRICS_KEY",
            metavar="KEY",
            help="key that scrapers of /metrics must send; other users can see options, so prefer the variable",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="serve /metrics on this port only"),
    ] = None,
    metrics_host: Annotated[str | None, typer.Option(help="address of --metrics-port; 127.0.0.1 by default")] = None,
    metrics_queues_max: Annotated[
        int | None,
        typer.Option(
            min=0, help="queues with their own series in /metrics, those with the most messages; 1000 by default"
        ),
    ] = None,
    rabbitmq: Annotated[
        str | None,
        typer.Option(
            envvar="LAVANT_RABBITMQ",
            metavar="URL",
            help="pass tasks to workers through RabbitMQ: amqp://USER:PASSWORD@HOST/",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="name of this broker in a federation; with it, other brokers may join this one"),
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="join a federation by a link to this broker: lavant://HOST:PORT, or lavants:// with TLS; repeatable",
        ),
    ] = None,
    join_key: Annotated[
        str,
        typer.Option(
            envvar="LAVANT_JOIN_KEY",
            metavar="KEY",
            help="key of the scope broker for --join; other users can see options, so prefer the variable",
        ),
    ] = "",
    client_address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="address for clients whose subscription moves to this broker: lavant://HOST:PORT; by default where "
            "the server listens",
        ),
    ] = None,
    role: Annotated[
        BrokerRole | None,
        typer.Option(
            help="head: publishers belong here; edge: subscribers do; any: both; auto, the default: with three brokers "
            "or more, those with several neighbours are heads, and the others edges; other clients are redirected",
        ),
    ] = None,
    require_advertisements: Annotated[
        bool,
        typer.Option(
            "--require-advertisements",
            help="accept only publications that an advertisement announces, and tell other brokers no more than those",
        ),
    ] = False,
    join_ca_file: Annotated[Path | None, typer.Option(help="CA certificates to trust, for --join lavants://")] = None,
    balance: Annotated[
        bool,
        typer.Option(
            "--balance", help="move subscriptions to brokers with less load, and take those of brokers with more"
        ),
    ] = False,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="bytes a second that this broker can send (10M, 1G, …), by which it is balanced; by default a guess "
            "from what it has sent",
        ),
    ] = None,
    matching_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="publications times subscriptions that this broker matches a second, at most; to try balancing",
        ),
    ] = None,
    resources: Annotated[
        Path | None,
        typer.Option(help="TOML file of topics, workers and a goal, by which the server starts and stops workers"),
    ] = None,
    memory_max: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="memory for messages, queues, jobs and subscriptions (512M, 4G, …); new ones beyond it are refused; "
            "by default a share of the memory of the container or machine",
        ),
    ] = None,
    clock_jump: Annotated[
        ClockJump,
        typer.Option(
            help="if the clock is ahead by more than can have passed since the last run: hold continues with the "
            "server's own time; accept takes the clock's time, and leases and messages expire by it",
        ),
    ] = ClockJump.HOLD,
    log_level: Annotated[
        LogLevel, typer.Option(help="least level of lines in the log, which goes to standard error")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(help="format of the log: text, or a JSON object per line")
    ] = LogFormat.TEXT,
    sqs_region: Annotated[str | None, typer.Option(help="region in the ARNs of queues; us-east-1 by default")] = None,
    sqs_account: Annotated[
        str | None, typer.Option(help="account (12 digits) in the URLs and ARNs of queues; zeros by default")
    ] = None,
    sqs_base_url: Annotated[
        str | None,
        typer.Option(
            help="base of the URLs of queues, if clients reach the server under another address, such as a proxy"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the addresses as JSON when it is ready")] = False,
) -> None:
    """Run a server: publish/subscribe, queues and jobs for Lavant clients, HTTP and SQS clients, on one port.

    The server is ready when it prints that it listens. The first start compiles kernels meanwhile, and caches them.

    Each option can be set in the configuration file and by an environment variable as well: --log-level is
    LAVANT_LOG_LEVEL. The command line comes first, then the environment, then the file.

    SIGTERM and Ctrl-C stop it gracefully. Even after a crash, accepted data is there at the next start.
    """
    from lavant.cli.reports.kernels import shown_progress  # noqa: PLC0415
    from lavant.cli.server.config_file import limits_in  # noqa: PLC0415
    from lavant.service.observability.logs import set_up_logging  # noqa: PLC0415
    from lavant.service.runtime.process import run  # noqa: PLC0415

    options = {name: value for name, value in context.params.items() if name != "config"}
    settings = settings_of(options, limits_in(context))
    set_up_logging(log_level.value, log_format.value)
    with contextlib.ExitStack() as progress:
        show = progress.enter_context(shown_progress())

        def on_started(started: Started) -> None:
            progress.close()
            text = _ready_text(started, settings.data)
            at, secure = _address(started.host, started.port), "s" if started.is_tls else ""
            urls = {"url": f"lavant{secure}://{at}", "http": f"http{secure}://{at}"}
            counts = {"queues": started.queues, "messages": started.messages}
            report(text, as_json=as_json, **urls, **counts)

        run(settings, on_started, show)


def settings_of(options: Mapping[str, Any], limits: ServiceLimits | None) -> ServeSettings:
    """Settings from options by name; raises if they are invalid."""
    from msgspec.structs import replace  # noqa: PLC0415

    from lavant.broker.queues.accounting.quotas import Quota  # noqa: PLC0415
    from lavant.service.auth.tenants import DEFAULT_QUOTA  # noqa: PLC0415
    from lavant.service.aws.credentials import read_credentials  # noqa: PLC0415
    from lavant.service.aws.sqs.settings import SqsSettings  # noqa: PLC0415
    from lavant.service.net.tls import TlsFiles  # noqa: PLC0415
    from lavant.service.observability.telemetry.files import KEEP  # noqa: PLC0415
    from lavant.service.rabbitmq.settings import RabbitMQSettings  # noqa: PLC0415
    from lavant.service.runtime.limits import LIMITS  # noqa: PLC0415
    from lavant.service.runtime.memory import parsed_bytes  # noqa: PLC0415
    from lavant.service.runtime.settings import MetricsSettings, ServeSettings  # noqa: PLC0415

    memory_max = options["memory_max"]
    data, certificate, key = options["data"], options["tls_certificate"], options["tls_key"]
    if data is not None and options["memory"]:
        raise InvalidValue(f"--memory keeps nothing on disk, so --data {data} would stay unused; give one of them")
    if data is None and not options["memory"]:
        raise InvalidValue("give --data DIR, to keep messages on disk, or --memory, to keep them in memory only")
    if options["audit_data"] and options["audit_log"] is None:
        raise InvalidValue("--audit-data needs --audit-log")
    if (certificate is None) != (key is None):
        raise InvalidValue("give --tls-certificate and --tls-key together, or neither")
    sqs = {name: options[f"sqs_{name}"] for name in ("region", "account", "base_url")}
    keep = options["telemetry_keep"]
    if options["credentials_file"] is not None:
        read_credentials(options["credentials_file"])
    quota = {name: options[f"namespace_{name}"] for name in Quota.__struct_fields__}
    metrics = {name: options[f"metrics_{name}"] for name in ("key", "port", "host", "queues_max")}
    if metrics["host"] is not None and metrics["port"] is None:
        raise InvalidValue("--metrics-host needs --metrics-port")
    return ServeSettings(
        **{name: options[name] for name in _SAME_NAME},
        public_hosts=_all_of(options["public_host"]),
        allowed_origins=_all_of(options["allow_origin"]),
        quota=replace(DEFAULT_QUOTA, **{name: value for name, value in quota.items() if value is not None}),
        tls=None if certificate is None else TlsFiles(certificate, key),
        spark=_spark(options),
        telemetry_keep=KEEP if keep is None else keep,
        federation=_federation(options),
        rabbitmq=None if options["rabbitmq"] is None else RabbitMQSettings(url=options["rabbitmq"]),
        metrics=MetricsSettings(**{name: value for name, value in metrics.items() if value is not None}),
        sqs=SqsSettings(**{name: value for name, value in sqs.items() if value is not None}),
        limits=LIMITS if limits is None else limits,
        memory_max=None if memory_max is None else parsed_bytes(memory_max),
    )


def _all_of(given: list[str] | None) -> tuple[str, ...]:
    return () if given is None else tuple(given)


def _federation(options: Mapping[str, Any]) -> FederationSettings | None:
    from lavant.core.addresses import Address  # noqa: PLC0415
    from lavant.service.federation.balancing.settings import BalancingSettings, BrokerCapacity  # noqa: PLC0415
    from lavant.service.federation.settings import FederationSettings  # noqa: PLC0415
    from lavant.service.runtime.memory import parsed_bytes  # noqa: PLC0415

    if options["name"] is None:
        for option in _OF_FEDERATION:
            if options[option]:
                raise InvalidValue(f"--{option.replace('_', '-')} needs --name, the name of this broker")
        return None
    if options["engine"] is EngineName.SPARK:
        raise InvalidValue("--name cannot be used with --engine spark: links need the local engine")
    bandwidth = options["bandwidth"]
    settings = FederationSettings(
        name=options["name"],
        joins=tuple(map(Address.parse, _all_of(options["join"]))),
        key=options["join_key"],
        role=BrokerRole.AUTO if options["role"] is None else options["role"],
        requires_advertisements=options["require_advertisements"],
        address=None if options["client_address"] is None else Address.parse(options["client_address"]),
        ca_file=options["join_ca_file"],
        balancing=BalancingSettings(
            is_on=options["balance"],
            capacity=BrokerCapacity(
                bandwidth_bytes_per_s=None if bandwidth is None else parsed_bytes(bandwidth),
                matching_rate_per_s=options["matching_rate"],
            ),
        ),
    )
    settings.tls()
    return settings


def _spark(options: Mapping[str, Any]) -> SparkSettings | None:
    from lavant.service.engines.spark.settings import SparkSettings  # noqa: PLC0415

    given = {name: options[name] for name in ("master", "hosts_max", "driver_host", "archive", "conf")}
    chosen = {name: value for name, value in given.items() if value}
    if options["engine"] is EngineName.SPARK:
        if "archive" in chosen:
            chosen["archive"] = str(chosen["archive"].absolute())
        return SparkSettings(**{**chosen, "conf": settings_in(options["conf"])})
    if chosen:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise InvalidValue(f"{named}: only for --engine spark")
    return None


def _ready_text(started: Started, data: Path | None) -> str:
    metrics = "" if started.metrics_at is None else f" metrics at {_address(*started.metrics_at)};"
    place = "in memory only" if data is None else f"in {data}"
    at, secure = _address(started.host, started.port), "s" if started.is_tls else ""
    return (
        f"listening at http{secure}://{at} and lavant{secure}://{at};{metrics} {place}: "
        f"{counted(started.queues, 'queue')} with {counted(started.messages, 'message')}"
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
