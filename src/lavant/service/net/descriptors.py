"""File descriptors: raises the limit of the process, and keeps a reserve that connections cannot use.

Without a reserve, connections would take all of them, and the journal could not open its next segment.
"""

from __future__ import annotations

import contextlib
import os
import resource

from lavant.core.errors import InvalidValue
from lavant.service.runtime.limits import ServiceLimits

DESCRIPTORS_MAX = 1 << 20
"""The most to ask for: some systems allocate a table of this length."""
CONNECTIONS_MIN = 16
"""With fewer a server does not start."""


def raise_limit() -> None:
    """Raise the limit of descriptors as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_allowed(limits: ServiceLimits, *, logs_max: int = 0) -> int:
    """How many connections there may be; call it when everything else that stays open is open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = soft if soft != resource.RLIM_INFINITY else DESCRIPTORS_MAX
    reserve = reserved(limits, logs_max=logs_max)
    left = allowed - _open_now() - reserve
    if left < min(CONNECTIONS_MIN, limits.connections_max):
        raise InvalidValue(
            f"this process may open {allowed} files (ulimit -n), of which {reserve} are reserved for the journal, "
            f"webhooks and the like: too few are left for connections; raise the limit to at least "
            f"{allowed - left + CONNECTIONS_MIN}"
        )
    return min(limits.connections_max, left)


def reserved(limits: ServiceLimits, *, logs_max: int = 0) -> int:
    """Descriptors kept for files and pipes, webhooks, the metrics port, and publication logs."""
    webhooks = limits.webhook_requests_total_max + limits.webhook_idle_max
    return limits.files_reserved + webhooks + limits.metrics_connections_max + logs_max


def _open_now() -> int:
    return len(os.listdir("/dev/fd"))
