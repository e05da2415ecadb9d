"""`lavant serve`: a server of durable queues."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.core.errors import InvalidValue
from lavant.core.ports import QUEUES_PORT

if TYPE_CHECKING:
    from lavant.service.engines.spark.settings import SparkSettings
    from lavant.service.process import Started


class Engine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


def serve(
    data: Annotated[Path | None, typer.Option(help="directory for the messages; made if it is not there")] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="keep messages in memory only: a restart loses them")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free")] = QUEUES_PORT,
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    acknowledge_early: Annotated[
        bool,
        typer.Option(
            "--acknowledge-early",
            help="answer acknowledgements before they are on disk: faster, and after "
            "a crash some messages come once more",
        ),
    ] = False,
    credentials_file: Annotated[
        Path | None, typer.Option(help="keys that SQS clients must sign with, as in ~/.aws/credentials")
    ] = None,
    keys_file: Annotated[
        Path | None, typer.Option(help="keys that all other clients must show, as `lavant keys new` writes them")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="certificate in PEM, with its issuers' behind it")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its private key in PEM, without a password")] = None,
    engine: Annotated[
        Engine, typer.Option(help="what matches publications: this process, or Spark beside it")
    ] = Engine.LOCAL,
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
    telemetry: Annotated[
        Path | None, typer.Option(help="directory for telemetry files; without, there are figures at /metrics only")
    ] = None,
    telemetry_keep: Annotated[
        int | None, typer.Option(min=1, help="telemetry files at most, the oldest are deleted; 1000 if not given")
    ] = None,
    sqs_region: Annotated[str | None, typer.Option(help="in the ARNs of queues; us-east-1 if not given")] = None,
    sqs_account: Annotated[
        str | None, typer.Option(help="12 digits, in the URLs and ARNs of queues; zeros if not given")
    ] = None,
    sqs_base_url: Annotated[
        str | None,
        typer.Option(help="where SQS clients reach the server, if not where they called it: behind a proxy, say"),
    ] = None,
) -> None:
    """Serve durable queues: to Lavant's own clients and to those of Amazon SQS, on one port.

    Stops in good order at SIGTERM or Ctrl-C. Whatever happens, messages that were accepted are there at the next start.
    """
    from lavant.console.cli.secrets import read_credentials  # noqa: PLC0415
    from lavant.service.process import run  # noqa: PLC0415
    from lavant.service.settings import ServeSettings  # noqa: PLC0415
    from lavant.service.sqs import SqsSettings  # noqa: PLC0415
    from lavant.service.telemetry.files import KEEP  # noqa: PLC0415
    from lavant.service.tls import TlsFiles  # noqa: PLC0415

    if (data is None) != memory:
        raise InvalidValue("give --data DIR, to keep messages on disk, or --memory, to keep them in memory only")
    if (tls_certificate is None) != (tls_key is None):
        raise InvalidValue("give --tls-certificate and --tls-key together, or neither")
    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    sqs: dict[str, Any] = {"region": sqs_region, "account": sqs_account, "base_url": sqs_base_url}
    settings = ServeSettings(
        port=port,
        host=host,
        data=data,
        acknowledge_early=acknowledge_early,
        credentials=None if credentials_file is None else read_credentials(credentials_file),
        keys_file=keys_file,
        tls=None if tls_certificate is None or tls_key is None else TlsFiles(tls_certificate, tls_key),
        spark=_spark(engine, master, hosts_max),
        webhooks_to_private_networks=webhooks_to_private_networks,
        telemetry=telemetry,
        telemetry_keep=KEEP if telemetry_keep is None else telemetry_keep,
        sqs=SqsSettings(**{name: value for name, value in sqs.items() if value is not None}),
    )
    run(settings, lambda started: print(_line(started, data), flush=True))


def _spark(engine: Engine, master: str | None, hosts_max: int | None) -> SparkSettings | None:
    from lavant.service.engines.spark.settings import SparkSettings  # noqa: PLC0415

    given: dict[str, Any] = {"master": master, "hosts_max": hosts_max}
    chosen = {name: value for name, value in given.items() if value is not None}
    if engine is Engine.SPARK:
        return SparkSettings(**chosen)
    if chosen:
        raise InvalidValue("--master and --hosts-max are for --engine spark")
    return None


def _line(started: Started, data: Path | None) -> str:
    host = f"[{started.host}]" if ":" in started.host else started.host
    place = "in memory only" if data is None else f"in {data}"
    at, secure = f"{host}:{started.port}", "s" if started.is_tls else ""
    return (
        f"listening at http{secure}://{at} and lavant{secure}://{at}; {place}: "
        f"{_counted(started.queues, 'queue')} with {_counted(started.messages, 'message')}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
