"""Limits of the server and quotas of namespaces, with the usage they are compared with.

A quota decides whether a request is accepted, never what a command does: replay ignores it, and lowering a quota
removes nothing. Usage is updated with each change and dropped with a namespace's last queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from lavant.broker.protocol.queue_config import namespace_of
from lavant.core.errors import InvalidValue, QuotaExceeded


class QueueLimits(msgspec.Struct, frozen=True):
    queues_max: int = 10_000
    memory_max: int = 16 << 30
    """Bytes of memory, as counted by `lavant.broker.queues.accounting.memory`."""
    moves_max: int = 100
    """Moves that may run at once."""
    deduplication_names_max: int = 10_000_000
    """Names per queue, each kept for five minutes."""


DEFAULT_LIMITS = QueueLimits()
UNLIMITED = QueueLimits(*[1 << 62] * 4)
"""For replay: a command that was accepted once is never refused."""


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that one namespace may use; None means unlimited."""

    queues_max: int | None = None
    bytes_max: int | None = None
    """Bodies and attributes of all messages in its queues."""
    subscriptions_max: int | None = None
    connections_max: int | None = None
    """Connections of all protocols, authenticated with one of its keys."""
    streams_max: int | None = None
    """Server-sent events and WebSockets."""
    requests_per_s: float | None = None

    def __post_init__(self) -> None:
        for name in Quota.__struct_fields__:
            value = getattr(self, name)
            is_rate = name.endswith("_per_s")
            if value is not None and not (0 < value < float("inf") if is_rate else value >= 0):
                raise InvalidValue(f"{name} must be {'positive' if is_rate else '0 or more'}, got {value}")


NO_QUOTA = Quota()


class Quotas:
    """Quotas by namespace. `default` applies to every named namespace without a quota of its own.

    >>> quotas = Quotas(Quota(queues_max=5), {"shop": Quota(queues_max=100)})
    >>> quotas.of("shop").queues_max, quotas.of("acme").queues_max, quotas.of("").queues_max
    (100, 5, None)
    """

    def __init__(self, default: Quota = NO_QUOTA, own: Mapping[str, Quota] | None = None) -> None:
        self.default = default
        self.own: Mapping[str, Quota] = {} if own is None else own

    def of(self, namespace: str) -> Quota:
        return self.own.get(namespace, self.default if namespace else NO_QUOTA)


class Usage:
    """Usage of queues by one namespace."""

    __slots__ = ("bytes", "queues")

    def __init__(self) -> None:
        self.queues = 0
        self.bytes = 0


NO_USAGE = Usage()
"""For a namespace without queues; never updated."""


class Usages:
    """Usage and quotas of all namespaces that have queues."""

    def __init__(self) -> None:
        self.quotas = Quotas()
        self._usages: dict[str, Usage] = {}

    def __len__(self) -> int:
        return len(self._usages)

    def __iter__(self) -> Iterator[str]:
        return iter(self._usages)

    def of(self, namespace: str) -> Usage:
        return self._usages.get(namespace, NO_USAGE)

    def enter(self, namespace: str) -> Usage:
        """Counts one more queue."""
        usage = self._usages.setdefault(namespace, Usage())
        usage.queues += 1
        return usage

    def leave(self, namespace: str) -> None:
        """Counts one queue less; it must be empty."""
        usage = self._usages[namespace]
        usage.queues -= 1
        if not usage.queues:
            del self._usages[namespace]

    def check_queues(self, names: Iterable[str]) -> None:
        """Raise if creating all these queues would exceed a quota."""
        more: dict[str, int] = {}
        for namespace in map(namespace_of, names):
            more[namespace] = more.get(namespace, 0) + 1
            wanted = self.of(namespace).queues + more[namespace]
            check_count("queues", namespace, wanted, self.quotas.of(namespace).queues_max)

    def check_bytes(self, namespace: str, size_bytes: int) -> None:
        """Raise if so many more bytes would exceed the namespace's quota."""
        bytes_max, held = self.quotas.of(namespace).bytes_max, self.of(namespace).bytes
        if bytes_max is not None and size_bytes and held + size_bytes > bytes_max:
            raise QuotaExceeded(
                f"the queues of {named(namespace)} hold {held} bytes, {size_bytes} more would exceed its quota of "
                f"{bytes_max}; receive and acknowledge some, or have the operator raise bytes_max"
            )

    def check_all_bytes(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Raise if so many more bytes, by queue name, would exceed any namespace's quota."""
        more: dict[str, int] = {}
        for name, size_bytes in sizes:
            namespace = namespace_of(name)
            more[namespace] = more.get(namespace, 0) + size_bytes
        for namespace, size_bytes in more.items():
            self.check_bytes(namespace, size_bytes)


def check_count(what: str, namespace: str, wanted: int, allowed: int | None) -> None:
    """Raise if a namespace would exceed its quota of a resource."""
    if allowed is not None and wanted > allowed:
        raise QuotaExceeded(
            f"{named(namespace)} has {wanted - 1} {what}, and its quota is {allowed}; remove some, or have the "
            f"operator raise {what}_max"
        )


def named(namespace: str) -> str:
    return f"namespace {namespace!r}" if namespace else "the default namespace"
