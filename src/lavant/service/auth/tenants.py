"""Tenants: connections, streams and request rates of each namespace, and their quotas.

    keys file ──► quotas ──► Tenants ──► one Tenant a namespace, shared by all its keys and credentials

Requests, connections and streams of all protocols are counted here. The broker itself counts queues, bytes and
subscriptions, because its check and change are atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakValueDictionary

from msgspec.structs import replace

from lavant.broker.machine.state import BrokerState
from lavant.broker.queues.accounting.quotas import NO_QUOTA, Quota, Quotas, check_count, named
from lavant.core.errors import Overloaded
from lavant.service.auth.rate_limits import TokenBucket
from lavant.service.observability.openmetrics import MetricFamily

SUBSCRIPTIONS_MAX = 100_000
DEFAULT_QUOTA = Quota(subscriptions_max=SUBSCRIPTIONS_MAX)
"""For named namespaces, unless the keys file or options of `lavant serve` set another."""


class Tenant:
    """The shared state of all keys of a namespace."""

    __slots__ = ("__weakref__", "_bucket", "_tenants", "connections", "namespace", "streams")

    def __init__(self, namespace: str, tenants: Tenants) -> None:
        self.namespace = namespace
        self.connections = 0
        """Authenticated connections of all protocols."""
        self.streams = 0
        self._tenants = tenants
        self._bucket: TokenBucket | None = None

    @property
    def quota(self) -> Quota:
        return self._tenants.quotas.of(self.namespace)

    def check_request(self, now_s: float) -> None:
        """Raises if the namespace exceeds its request rate."""
        rate_per_s = self.quota.requests_per_s
        if rate_per_s is None:
            return
        if self._bucket is None or self._bucket.rate_per_s != rate_per_s:
            self._bucket = TokenBucket(rate_per_s)
        wait_s = self._bucket.take(1, now_s)
        if wait_s:
            raise Overloaded(
                f"{named(self.namespace)} may ask {rate_per_s:g} times a second; ask again in {wait_s:g} s"
            )

    def connect(self) -> None:
        """Count a connection; raises if that exceeds the quota."""
        check_count("connections", self.namespace, self.connections + 1, self.quota.connections_max)
        self.connections += 1

    def disconnect(self) -> None:
        self.connections -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a stream while it is open; raises if that exceeds the quota."""
        check_count("streams", self.namespace, self.streams + 1, self.quota.streams_max)
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


class Tenants:
    """The tenants of a server. One without keys and connections is garbage collected."""

    def __init__(self, default: Quota = NO_QUOTA) -> None:
        self.quotas = Quotas(default)
        """Shared with the broker."""
        self._tenants: WeakValueDictionary[str, Tenant] = WeakValueDictionary()

    def of(self, namespace: str) -> Tenant:
        found = self._tenants.get(namespace)
        if found is None:
            found = self._tenants[namespace] = Tenant(namespace, self)
        return found

    def set_quotas(self, own: Mapping[str, Quota]) -> None:
        """Replace the quotas of the keys file. Existing connections and queues stay, even above a new quota."""
        default = self.quotas.default
        self.quotas.own = {name: _with_default(quota, default if name else NO_QUOTA) for name, quota in own.items()}

    def families(self, broker: BrokerState, namespaces_max: int) -> Iterator[MetricFamily]:
        """Usage and quotas; of the namespaces with the most queues, if there are too many."""
        usages = broker.queues.usages
        known = {*usages, *self._tenants, *self.quotas.own}
        listed = sorted(known, key=lambda name: (-usages.of(name).queues, name))[:namespaces_max]
        columns: dict[str, Callable[[str], int]] = {
            "subscriptions": broker.subscriptions.count,
            "connections": lambda name: self.of(name).connections,
            "streams": lambda name: self.of(name).streams,
        }
        for what, value in columns.items():
            samples = [({"namespace": name}, value(name)) for name in listed]
            yield MetricFamily(f"lavant_namespace_{what}", "gauge", f"{what.capitalize()} of a namespace.", samples)
        limits = [
            ({"namespace": name, "resource": field.removesuffix("_max")}, allowed)
            for name in listed
            for field in Quota.__struct_fields__
            if (allowed := getattr(self.quotas.of(name), field)) is not None
        ]
        yield MetricFamily("lavant_namespace_quota", "gauge", "How much of a resource a namespace may use.", limits)


def _with_default(quota: Quota, default: Quota) -> Quota:
    """Missing limits are those of the default."""
    said = {field: getattr(quota, field) for field in Quota.__struct_fields__}
    return replace(default, **{field: value for field, value in said.items() if value is not None})


ANYBODY = Tenants().of("")
"""For servers without keys: no quotas."""
