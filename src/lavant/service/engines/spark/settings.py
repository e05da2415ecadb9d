"""Settings and limits of the Spark engine."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue

HOSTS_MAX = 256


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `lavant serve --engine spark`."""

    master: str = "local[*]"
    """`local[N]`, or a cluster, such as `spark://HOST:PORT`, whose executors follow the load."""
    driver_host: str | None = None
    """The address at which executors reach this machine; by default the one used towards the master."""
    archive: str | None = None
    """A file of `lavant spark pack`, for executors without Lavant."""
    conf: dict[str, str] = {}
    """Further settings of Spark."""
    hosts_max: int = 8
    """The most executors on a cluster; tasks of a batch in local mode."""
    slices: int = 16
    """Slices of the subscriptions: at most this many hosts can share them."""

    def __post_init__(self) -> None:
        if not 1 <= self.hosts_max <= min(self.slices, HOSTS_MAX):
            raise InvalidValue(
                f"the Spark engine runs on between 1 and {min(self.slices, HOSTS_MAX)} hosts, got {self.hosts_max}"
            )


class SparkLimits(msgspec.Struct, frozen=True):
    """Bounds on waiting publications, and on the work sent to Spark at once."""

    owed_max: int = 200_000
    """Lag of a log; beyond it, publications are refused until it is smaller."""
    owed_bytes_max: int = 256 << 20
    range_publications_max: int = 8192
    """Publications of one log that are matched at once."""
    range_bytes_max: int = 32 << 20
    """More only for a single batch."""
    range_matches_max: int = 1 << 28
    """Publications times subscriptions; more only for a single publication."""
    ranges_max: int = 32
    """Logs that are matched at once."""
    scopes_max: int = 1000
    """Namespaces and schemes with a log."""
    file_bytes_max: int = 16 << 20
    """Of a log's files; completely delivered ones are deleted."""
    retry_ms: int = 500
    """Delay before a log whose queues are full is retried."""


LIMITS = SparkLimits()
