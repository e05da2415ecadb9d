"""What a server is told when it starts."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from lavant.broker.queues.accounting.quotas import Quota
from lavant.broker.storage.journal import JournalConfig
from lavant.core.errors import InvalidValue
from lavant.service.auth.browser_guard import BrowserGuard, HostList, is_address
from lavant.service.auth.tenants import DEFAULT_QUOTA
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.engines.spark.settings import SparkSettings
from lavant.service.net.tls import TlsFiles
from lavant.service.observability.telemetry.files import KEEP
from lavant.service.rabbitmq.settings import RabbitMQSettings
from lavant.service.runtime.limits import LIMITS, QUEUES_SHOWN_MAX, ServiceLimits
from lavant.service.runtime.memory import check_memory_max

HOLD, ACCEPT = "hold", "accept"


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who sees what at `/metrics`, and where."""

    key: str = ""
    """That scrapers must show; without, everybody sees the metrics who reaches the port."""
    port: int | None = None
    """One of their own, 0 takes one that is free; without, they are on the server's port."""
    host: str = "127.0.0.1"
    """Where that port is."""
    queues_max: int = QUEUES_SHOWN_MAX
    """Queues with series of their own."""

    def __post_init__(self) -> None:
        if self.port is not None and not self.key and not is_loopback(self.host):
            raise InvalidValue(
                f"metrics would be shown at {self.host}, where other machines reach them, to everybody; give "
                "--metrics-key, or stay with --metrics-host 127.0.0.1"
            )


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is told when it starts."""

    port: int
    """0 takes one that is free."""
    host: str = "127.0.0.1"
    public_hosts: tuple[str, ...] = ()
    """Names that clients reach it by, beside localhost and IP addresses."""
    allowed_origins: tuple[str, ...] = ()
    """Of web pages that may use it though they come from elsewhere."""
    data: Path | None = None
    """Where messages are kept; without, in memory only."""
    journal: JournalConfig = JournalConfig()
    """How large its segments are, and when they are folded."""
    acknowledge_early: bool = False
    credentials_file: Path | None = None
    """Of SQS clients. With it alone, the other protocols are closed."""
    keys_file: Path | None = None
    """Of Lavant's own clients and those of the HTTP interface. With it alone, SQS is closed."""
    quota: Quota = DEFAULT_QUOTA
    """Of each namespace with a name, unless the keys file says otherwise."""
    tls: TlsFiles | None = None
    webhooks_to_private_networks: bool = False
    """Also where keys are wanted; where none are, webhooks may be anywhere."""
    spark: SparkSettings | None = None
    """With them publications are matched on Spark, without in this process."""
    audit_log: Path | None = None
    """Where it is told who did what; without, nowhere."""
    audit_data: bool = False
    """Whether publishing, sending, receiving and the like are told too."""
    telemetry: Path | None = None
    """Where telemetry files are kept; without, there are figures at `/metrics` only."""
    telemetry_keep: int = KEEP
    """How many files."""
    rabbitmq: RabbitMQSettings | None = None
    """With them workers get the tasks of jobs through RabbitMQ, without from this server."""
    resources: Path | None = None
    """The file of the resource manager; without, workers are started by others."""
    metrics: MetricsSettings = MetricsSettings()
    sqs: SqsSettings = SqsSettings()
    """All but the salt, which belongs to what is stored."""
    limits: ServiceLimits = LIMITS
    memory_max: int | None = None
    """Bytes of memory that the state may take; without, a share of what there is."""
    clock_jump: str = HOLD
    """Whether the wall clock's time is taken even if it is not credible that so much has passed."""

    def __post_init__(self) -> None:
        if self.memory_max is not None:
            check_memory_max(self.memory_max)
        if self.is_open and not is_loopback(self.host):
            raise InvalidValue(
                f"the server would listen at {self.host}, where other machines reach it, and nobody would have to "
                "prove who they are; give --keys-file, --credentials-file or both, or stay with --host 127.0.0.1"
            )

        BrowserGuard(HostList(self.hosts), self.allowed_origins)  # raises what is wrong with them

    @property
    def hosts(self) -> tuple[str, ...]:
        """All names that it answers to."""
        base_url = None if self.sqs.base_url is None else urlsplit(self.sqs.base_url).hostname
        given = (self.host, self.metrics.host, base_url)
        return (*self.public_hosts, *(host for host in given if host and not is_address(host)))

    @property
    def is_open(self) -> bool:
        """Whether anybody may do everything."""
        return self.keys_file is None and self.credentials_file is None


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "queues.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
