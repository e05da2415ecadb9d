"""File descriptors: how many this process may have, and how many of them are left for connections.

Without a bound, connections would take all of them, and the journal could not begin its next segment. So a reserve is
kept, and the connections get the rest.
"""

from __future__ import annotations

import contextlib
import os
import resource

from lavant.core.errors import InvalidValue
from lavant.service.runtime.limits import ServiceLimits

DESCRIPTORS_MAX = 1 << 20
"""More are not asked for: some systems keep a table as long as that."""
CONNECTIONS_MIN = 16
"""With fewer, a server does not start."""


def raise_limit() -> None:
    """As many descriptors as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_allowed(limits: ServiceLimits, *, lanes_max: int = 0) -> int:
    """How many connections there may be, when everything else that stays open has been opened."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = soft if soft != resource.RLIM_INFINITY else DESCRIPTORS_MAX
    reserve = reserved(limits, lanes_max=lanes_max)
    left = allowed - _open_now() - reserve
    if left < min(CONNECTIONS_MIN, limits.connections_max):
        raise InvalidValue(
            f"this process may open {allowed} files (ulimit -n), of which {reserve} are kept for the journal, webhooks "
            f"and the like: too few are left for connections; let it open at least "
            f"{allowed - left + CONNECTIONS_MIN}"
        )
    return min(limits.connections_max, left)


def reserved(limits: ServiceLimits, *, lanes_max: int = 0) -> int:
    """Descriptors that no connection gets: files and pipes, webhooks, the metrics' own port, and logs of lanes."""
    webhooks = limits.webhook_requests_total_max + limits.webhook_idle_max
    return limits.files_reserved + webhooks + limits.metrics_connections_max + lanes_max


def _open_now() -> int:
    return len(os.listdir("/dev/fd"))
