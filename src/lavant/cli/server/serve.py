"""`lavant serve`: the service."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import counted
from lavant.cli.server.config_file import take_config
from lavant.core.errors import InvalidValue
from lavant.core.ports import QUEUES_PORT

if TYPE_CHECKING:
    from lavant.service.engines.spark.settings import SparkSettings
    from lavant.service.runtime.limits import ServiceLimits
    from lavant.service.runtime.process import Started
    from lavant.service.runtime.settings import ServeSettings


_AS_THEY_ARE = (
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
"""Options that are settings of the same name."""


class EngineName(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class ClockJump(StrEnum):
    HOLD = "hold"
    ACCEPT = "accept"


def _quota_option(what: str) -> Any:
    return typer.Option(min=0, help=f"{what} of each namespace at most; the keys file may say otherwise of some")


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=take_config,
            is_eager=True,
            envvar="LAVANT_CONFIG",
            help="file of options; `lavant config` explains",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="directory for the messages; made if it is not there")] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="keep messages in memory only: a restart loses them")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free")] = QUEUES_PORT,
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    public_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="name that HTTP clients reach the server by, beside localhost and IP addresses: queues.example, "
            "queues.example:7324 or *.queues.example; give several times",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="web pages that may use the server though they come from elsewhere: https://app.example; give "
            "several times",
        ),
    ] = None,
    acknowledge_early: Annotated[
        bool,
        typer.Option(
            "--acknowledge-early",
            help="answer acknowledgements before they are on disk: faster, and after "
            "a crash some messages come once more",
        ),
    ] = False,
    credentials_file: Annotated[
        Path | None,
        typer.Option(help="keys that SQS clients must sign with; without --keys-file, others are shut out"),
    ] = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(help="keys that other clients must show; without --credentials-file, SQS is closed"),
    ] = None,
    namespace_queues_max: Annotated[int | None, _quota_option("queues")] = None,
    namespace_bytes_max: Annotated[int | None, _quota_option("bytes of messages")] = None,
    namespace_subscriptions_max: Annotated[int | None, _quota_option("subscriptions")] = None,
    namespace_connections_max: Annotated[int | None, _quota_option("connections")] = None,
    namespace_streams_max: Annotated[int | None, _quota_option("server-sent events and WebSockets")] = None,
    namespace_requests_per_s: Annotated[float | None, _quota_option("requests a second")] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="certificate in PEM, with its issuers' behind it")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its private key in PEM, without a password")] = None,
    engine: Annotated[
        EngineName, typer.Option(help="what matches publications: this process, or Spark beside it")
    ] = EngineName.LOCAL,
    master: Annotated[
        str | None,
        typer.Option(help="of Spark: local[N], or spark://HOST:PORT of a cluster, whose executors follow the load"),
    ] = None,
    hosts_max: Annotated[int | None, typer.Option(min=1, help="executors, or tasks of a batch, at most; 8")] = None,
    webhooks_to_private_networks: Annotated[
        bool,
        typer.Option(
            "--webhooks-to-private-networks",
            help="post to webhooks on this machine and in private networks too, where keys are wanted",
        ),
    ] = False,
    audit_log: Annotated[
        Path | None,
        typer.Option(help="file for a line of JSON for each administrative command, and each that is denied"),
    ] = None,
    audit_data: Annotated[
        bool, typer.Option("--audit-data", help="lines for publishing, sending, receiving and tasks too")
    ] = False,
    telemetry: Annotated[
        Path | None, typer.Option(help="directory for telemetry files; without, there are figures at /metrics only")
    ] = None,
    telemetry_keep: Annotated[
        int | None, typer.Option(min=1, help="telemetry files at most, the oldest are deleted; 1000 if not given")
    ] = None,
    metrics_key: Annotated[
        str | None,
        typer.Option(
            envvar="LAVANT_METRICS_KEY",
            metavar="KEY",
            help="key that scrapers of /metrics must show; better in the environment, where others do not see it",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="serve /metrics on a port of their own, and not on the server's"),
    ] = None,
    metrics_host: Annotated[str | None, typer.Option(help="address of --metrics-port; 127.0.0.1 if not given")] = None,
    metrics_queues_max: Annotated[
        int | None,
        typer.Option(min=0, help="queues with series of their own at /metrics, those with the most messages; 1000"),
    ] = None,
    rabbitmq: Annotated[
        str | None,
        typer.Option(
            envvar="LAVANT_RABBITMQ",
            metavar="URL",
            help="have workers get tasks through RabbitMQ, at amqp://USER:PASSWORD@HOST/",
        ),
    ] = None,
    resources: Annotated[
        Path | None,
        typer.Option(help="TOML file: workers of topics, and a goal; the server starts and stops workers by it"),
    ] = None,
    memory_max: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="memory for messages, queues, jobs and subscriptions: 512M, 4G, …; then new ones are refused; a share "
            "of the container's memory if not given",
        ),
    ] = None,
    clock_jump: Annotated[
        ClockJump,
        typer.Option(
            help="a clock that is ahead by more than can have passed since the last run: hold goes on by the server's "
            "own time, accept takes the clock's, and what is over by it expires",
        ),
    ] = ClockJump.HOLD,
    sqs_region: Annotated[str | None, typer.Option(help="in the ARNs of queues; us-east-1 if not given")] = None,
    sqs_account: Annotated[
        str | None, typer.Option(help="12 digits, in the URLs and ARNs of queues; zeros if not given")
    ] = None,
    sqs_base_url: Annotated[
        str | None,
        typer.Option(help="where SQS clients reach the server, if not where they called it: behind a proxy, say"),
    ] = None,
) -> None:
    """Serve publish/subscribe and durable queues on one port: to Lavant's own clients, over HTTP, and to SQS clients.

    It is ready when it says that it listens: kernels are compiled before, once for a version and a processor.

    Stops in good order at SIGTERM or Ctrl-C. Whatever happens, what was accepted is there at the next start.
    """
    from lavant.cli.reports.kernels import shown_progress  # noqa: PLC0415
    from lavant.cli.server.config_file import limits_in  # noqa: PLC0415
    from lavant.service.runtime.process import run  # noqa: PLC0415

    options = {name: value for name, value in context.params.items() if name != "config"}
    settings = settings_of(options, limits_in(context))
    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    logging.getLogger("lavant.service.runtime.process").setLevel(logging.INFO)
    with contextlib.ExitStack() as shown:
        show = shown.enter_context(shown_progress())

        def tell(started: Started) -> None:
            shown.close()
            print(_line(started, settings.data), flush=True)

        run(settings, tell, show)


def settings_of(options: Mapping[str, Any], limits: ServiceLimits | None) -> ServeSettings:
    """What the options, by their names, tell a server; raises what is wrong with them."""
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
    if (data is None) != options["memory"]:
        raise InvalidValue("give --data DIR, to keep messages on disk, or --memory, to keep them in memory only")
    if options["audit_data"] and options["audit_log"] is None:
        raise InvalidValue("--audit-data says what is in --audit-log; give that, too")
    if (certificate is None) != (key is None):
        raise InvalidValue("give --tls-certificate and --tls-key together, or neither")
    sqs = {name: options[f"sqs_{name}"] for name in ("region", "account", "base_url")}
    keep = options["telemetry_keep"]
    if options["credentials_file"] is not None:
        read_credentials(options["credentials_file"])
    quota = {name: options[f"namespace_{name}"] for name in Quota.__struct_fields__}
    metrics = {name: options[f"metrics_{name}"] for name in ("key", "port", "host", "queues_max")}
    if metrics["host"] is not None and metrics["port"] is None:
        raise InvalidValue("--metrics-host is where --metrics-port is; give that, too")
    return ServeSettings(
        **{name: options[name] for name in _AS_THEY_ARE},
        public_hosts=_all_of(options["public_host"]),
        allowed_origins=_all_of(options["allow_origin"]),
        quota=replace(DEFAULT_QUOTA, **{name: value for name, value in quota.items() if value is not None}),
        tls=None if certificate is None else TlsFiles(certificate, key),
        spark=_spark(options["engine"], options["master"], options["hosts_max"]),
        telemetry_keep=KEEP if keep is None else keep,
        rabbitmq=None if options["rabbitmq"] is None else RabbitMQSettings(url=options["rabbitmq"]),
        metrics=MetricsSettings(**{name: value for name, value in metrics.items() if value is not None}),
        sqs=SqsSettings(**{name: value for name, value in sqs.items() if value is not None}),
        limits=LIMITS if limits is None else limits,
        memory_max=None if memory_max is None else parsed_bytes(memory_max),
    )


def _all_of(given: list[str] | None) -> tuple[str, ...]:
    return () if given is None else tuple(given)


def _spark(engine: EngineName, master: str | None, hosts_max: int | None) -> SparkSettings | None:
    from lavant.service.engines.spark.settings import SparkSettings  # noqa: PLC0415

    given: dict[str, Any] = {"master": master, "hosts_max": hosts_max}
    chosen = {name: value for name, value in given.items() if value is not None}
    if engine is EngineName.SPARK:
        return SparkSettings(**chosen)
    if chosen:
        raise InvalidValue("--master and --hosts-max are for --engine spark")
    return None


def _line(started: Started, data: Path | None) -> str:
    metrics = "" if started.metrics_at is None else f" metrics at {_address(*started.metrics_at)};"
    place = "in memory only" if data is None else f"in {data}"
    at, secure = _address(started.host, started.port), "s" if started.is_tls else ""
    return (
        f"listening at http{secure}://{at} and lavant{secure}://{at};{metrics} {place}: "
        f"{counted(started.queues, 'queue')} with {counted(started.messages, 'message')}"
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
