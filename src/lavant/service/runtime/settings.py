"""Settings of a server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from lavant.broker.queues.accounting.quotas import Quota
from lavant.broker.storage.journal import JournalConfig
from lavant.core.addresses import is_loopback
from lavant.core.errors import InvalidValue
from lavant.service.auth.browser_guard import BrowserGuard, HostList, is_address
from lavant.service.auth.tenants import DEFAULT_QUOTA
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.engines.spark.settings import SparkSettings
from lavant.service.federation.settings import FederationSettings
from lavant.service.net.tls import TlsFiles
from lavant.service.observability.telemetry.files import KEEP
from lavant.service.rabbitmq.settings import RabbitMQSettings
from lavant.service.runtime.limits import LIMITS, QUEUES_SHOWN_MAX, ServiceLimits
from lavant.service.runtime.memory import check_memory_max

HOLD, ACCEPT = "hold", "accept"


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Access, address and size of `/metrics`."""

    key: str = ""
    """Required of scrapers; without it, the metrics are open to all who reach the port."""
    port: int | None = None
    """A port of their own; 0 takes a free one. Without it they are on the server's port."""
    host: str = "127.0.0.1"
    """The address of that port."""
    queues_max: int = QUEUES_SHOWN_MAX
    """Queues with series of their own."""

    def __post_init__(self) -> None:
        if self.port is not None and not self.key and not is_loopback(self.host):
            raise InvalidValue(
                f"metrics would be open to everybody at {self.host}, which other machines can reach; give "
                "--metrics-key, or stay with --metrics-host 127.0.0.1"
            )


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `lavant serve`."""

    port: int
    """0 takes a free one."""
    host: str = "127.0.0.1"
    public_hosts: tuple[str, ...] = ()
    """Host names that clients use, besides localhost and IP addresses."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages elsewhere that may use the server."""
    data: Path | None = None
    """The data directory; without it, all state is in memory only."""
    journal: JournalConfig = JournalConfig()
    """Size of segments, and when they are compacted."""
    acknowledge_early: bool = False
    credentials_file: Path | None = None
    """Credentials of SQS clients. With it alone, the other protocols are closed."""
    keys_file: Path | None = None
    """Keys of native clients and of the HTTP interface. With it alone, SQS is closed."""
    quota: Quota = DEFAULT_QUOTA
    """Of each named namespace, unless the keys file says otherwise."""
    tls: TlsFiles | None = None
    webhooks_to_private_networks: bool = False
    """Allow these even if keys are required; an open server always allows them."""
    spark: SparkSettings | None = None
    """If set, publications are matched on Spark, otherwise in this process."""
    audit_log: Path | None = None
    """The audit log file, if any."""
    audit_data: bool = False
    """Whether the data plane is audited too: publishing, sending, receiving and the like."""
    telemetry: Path | None = None
    """Directory of telemetry files; without it there are only metrics."""
    telemetry_keep: int = KEEP
    """The number of files to keep."""
    rabbitmq: RabbitMQSettings | None = None
    """If set, workers get tasks of jobs through RabbitMQ, otherwise from this server."""
    federation: FederationSettings | None = None
    """If set, the server is a broker of a federation."""
    resources: Path | None = None
    """The file of the resource manager; without it, you start the workers."""
    metrics: MetricsSettings = MetricsSettings()
    sqs: SqsSettings = SqsSettings()
    """Without the salt, which belongs to the stored data."""
    limits: ServiceLimits = LIMITS
    memory_max: int | None = None
    """Limit of the state in bytes; by default a share of the available memory."""
    clock_jump: str = HOLD
    """Whether to accept the wall clock after an implausible jump."""

    def __post_init__(self) -> None:
        if self.memory_max is not None:
            check_memory_max(self.memory_max)
        if self.is_open and not is_loopback(self.host):
            raise InvalidValue(
                f"the server would listen at {self.host}, which other machines can reach, without any "
                "authentication; give --keys-file, --credentials-file or both, or stay with --host 127.0.0.1"
            )

        BrowserGuard(HostList(self.hosts), self.allowed_origins)  # validates them

    @property
    def hosts(self) -> tuple[str, ...]:
        """All accepted host names."""
        base_url = None if self.sqs.base_url is None else urlsplit(self.sqs.base_url).hostname
        given = (self.host, self.metrics.host, base_url)
        return (*self.public_hosts, *(host for host in given if host and not is_address(host)))

    @property
    def is_open(self) -> bool:
        """Whether there is no authentication."""
        return self.keys_file is None and self.credentials_file is None
