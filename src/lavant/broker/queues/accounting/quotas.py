"""Quotas of namespaces: how much of the server one of them may use, and how much it does.

A quota decides whether something is accepted, never what a command does: it is not looked at in a replay, and what is
there already when a quota is lowered stays. Counts are kept with each change, and forgotten with a namespace's last
queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from lavant.broker.protocol.queue_config import namespace_of
from lavant.core.errors import InvalidValue, QuotaExceeded


class QueueLimits(msgspec.Struct, frozen=True):
    queues_max: int = 10_000
    memory_max: int = 16 << 30
    """Bytes of memory that all that is held may take, as `lavant.broker.queues.accounting.memory` counts them."""
    moves_max: int = 100
    """How many may run at once."""
    deduplication_names_max: int = 10_000_000
    """How many a queue remembers, which is for five minutes each."""


DEFAULT_LIMITS = QueueLimits()
UNLIMITED = QueueLimits(*[1 << 62] * 4)
"""For a replay: what was accepted once is not refused later."""


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one namespace may use; as much as it likes where nothing is said."""

    queues_max: int | None = None
    bytes_max: int | None = None
    """Of bodies and attributes of all messages in its queues."""
    subscriptions_max: int | None = None
    connections_max: int | None = None
    """Of all protocols, that have shown one of its keys."""
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
    """By namespace. `default` holds for all that have a name and no quota of their own.

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
    """What a namespace has in queues."""

    __slots__ = ("bytes", "queues")

    def __init__(self) -> None:
        self.queues = 0
        self.bytes = 0


NO_USAGE = Usage()
"""Of a namespace without queues; nobody counts here."""


class Usages:
    """Of all namespaces that have queues, and what they may have."""

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
        """One more queue."""
        usage = self._usages.setdefault(namespace, Usage())
        usage.queues += 1
        return usage

    def leave(self, namespace: str) -> None:
        """One queue less, which was empty."""
        usage = self._usages[namespace]
        usage.queues -= 1
        if not usage.queues:
            del self._usages[namespace]

    def check_queues(self, names: Iterable[str]) -> None:
        """Raise unless there may be all these queues too."""
        more: dict[str, int] = {}
        for namespace in map(namespace_of, names):
            more[namespace] = more.get(namespace, 0) + 1
            wanted = self.of(namespace).queues + more[namespace]
            check_count("queues", namespace, wanted, self.quotas.of(namespace).queues_max)

    def check_bytes(self, namespace: str, size_bytes: int) -> None:
        """Raise unless a namespace may have so many bytes more."""
        bytes_max, held = self.quotas.of(namespace).bytes_max, self.of(namespace).bytes
        if bytes_max is not None and size_bytes and held + size_bytes > bytes_max:
            raise QuotaExceeded(
                f"the queues of {named(namespace)} hold {held} bytes, {size_bytes} more would be over its quota of "
                f"{bytes_max}; receive and acknowledge some, or have the operator raise bytes_max"
            )

    def check_all_bytes(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Raise unless queues, by name, may have so many bytes more, all of them."""
        more: dict[str, int] = {}
        for name, size_bytes in sizes:
            namespace = namespace_of(name)
            more[namespace] = more.get(namespace, 0) + size_bytes
        for namespace, size_bytes in more.items():
            self.check_bytes(namespace, size_bytes)


def check_count(what: str, namespace: str, wanted: int, allowed: int | None) -> None:
    """Raise if a namespace would have more of a thing than its quota says."""
    if allowed is not None and wanted > allowed:
        raise QuotaExceeded(
            f"{named(namespace)} has {wanted - 1} {what}, and its quota is {allowed}; remove some, or have the "
            f"operator raise {what}_max"
        )


def named(namespace: str) -> str:
    return f"namespace {namespace!r}" if namespace else "the default namespace"
