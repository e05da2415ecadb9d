"""What the Spark engine is told, and what bounds it."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue

HOSTS_MAX = 256


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of `lavant serve --engine spark`."""

    master: str = "local[*]"
    """`local[N]`, or `spark://HOST:PORT` of a standalone cluster, whose executors follow the load."""
    hosts_max: int = 8
    """Executors at most on a cluster; tasks of a batch in local mode."""
    slices: int = 16
    """Of the subscriptions: as many hosts can share them."""

    def __post_init__(self) -> None:
        if not 1 <= self.hosts_max <= min(self.slices, HOSTS_MAX):
            raise InvalidValue(
                f"the Spark engine runs on between 1 and {min(self.slices, HOSTS_MAX)} hosts, got {self.hosts_max}"
            )


class SparkLimits(msgspec.Struct, frozen=True):
    """What may wait, and what goes to Spark at once."""

    owed_max: int = 200_000
    """Publications of a lane that are accepted and not delivered; then more are refused until there are fewer."""
    owed_bytes_max: int = 256 << 20
    stretch_publications_max: int = 8192
    """What one lane hands over at once."""
    stretch_bytes_max: int = 32 << 20
    """More only if it came as one batch."""
    stretch_matches_max: int = 1 << 28
    """Publications times subscriptions; more only if it is one publication."""
    stretches_max: int = 32
    """Lanes that are handed over at once."""
    lanes_max: int = 1000
    file_bytes_max: int = 16 << 20
    """Of a log's files: those that were delivered as a whole are deleted."""
    retry_ms: int = 500
    """A lane whose queues are full is matched again after so long."""


LIMITS = SparkLimits()
