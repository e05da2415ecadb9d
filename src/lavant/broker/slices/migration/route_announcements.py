"""Announces routes to all hosts, repeatedly until each has the newest one of every slice.

This is the shared configuration of e-StreamHub, Section IV-B, which the paper keeps in ZooKeeper: the manager owns it,
hosts have copies, and the manager knows which host has which version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lavant.broker.slices.migration.messages import Route, Routed, Transmit
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId


class SliceRoutes:
    """The newest route to each slice. Versions grow, so late messages have no effect."""

    def __init__(self, placement: Mapping[SliceId, HostId]) -> None:
        self._routes = {slice: Route(0, slice, (host,)) for slice, host in placement.items()}

    def hosts(self, slice: SliceId) -> tuple[HostId, ...]:
        route = self._routes.get(slice)
        if route is None:
            raise InvalidValue(f"the location of {slice!r} is unknown; give its host in the placement")
        return route.hosts

    def take(self, route: Route) -> None:
        known = self._routes.get(route.slice)
        if known is None or known.version < route.version:
            self._routes[route.slice] = route

    def save(self) -> list[Route]:
        return list(self._routes.values())

    def load(self, routes: Iterable[Route]) -> None:
        self._routes = {route.slice: route for route in routes}


RETRY_MS = 300


class Announced(msgspec.Struct, frozen=True):
    """All hosts have this route. `sent` has for each upstream slice the last number sent by an older one."""

    route: Route
    sent: dict[SliceId, int]


class SavedAnnouncements(msgspec.Struct, frozen=True):
    hosts: list[HostId]
    newest: list[Route]
    retry_ms: int
    missing: dict[SliceId, list[HostId]]
    sent: dict[SliceId, dict[SliceId, int]]


class RouteAnnouncements:
    """The routes, and for each slice the hosts that do not have its newest."""

    def __init__(self, hosts: Iterable[HostId], placement: Mapping[SliceId, HostId]) -> None:
        """Routes and hosts at system start, which all know."""
        self.hosts: set[HostId] = set(hosts)
        self.newest = {slice: Route(0, slice, (host,)) for slice, host in placement.items()}
        self._missing: dict[SliceId, set[HostId]] = {}
        self._sent: dict[SliceId, dict[SliceId, int]] = {}
        self._retry_ms = 0

    def restart(self) -> None:
        """Repeat the last announcements at once."""
        self._retry_ms = 0

    def join(self, host: HostId, now_ms: int) -> list[Transmit]:
        """Tell a new host everything; pending announcements wait for it too."""
        self.hosts.add(host)
        for slice in self.newest:
            self._missing.setdefault(slice, set()).add(host)
            self._sent.setdefault(slice, {})
        return self._tell(now_ms)

    def leave(self, host: HostId) -> list[Announced]:
        """Stop waiting for a host without slices, which sends nothing."""
        self.hosts.discard(host)
        return [done for slice in sorted(self._missing) if (done := self._heard(slice, host)) is not None]

    def announce(self, route: Route, now_ms: int) -> list[Transmit]:
        """Tell all hosts, instead of an older pending route of this slice."""
        assert route.version > self.newest[route.slice].version, "routes get newer"
        self.newest[route.slice] = route
        self._missing[route.slice] = set(self.hosts)
        self._sent[route.slice] = {}
        return self._tell(now_ms, [route.slice])

    def routed(self, host: HostId, routed: Routed) -> Announced | None:
        """A host has a route; if it was the last, all have."""
        slice = routed.slice
        if routed.version != self.newest[slice].version or host not in self._missing.get(slice, ()):
            return None
        sent = self._sent[slice]
        for upstream, sequence in routed.sent.items():
            sent[upstream] = max(sequence, sent.get(upstream, 0))
        return self._heard(slice, host)

    def due(self, now_ms: int) -> list[Transmit]:
        return self._tell(now_ms) if self._missing and self._retry_ms <= now_ms else []

    def wakeup_ms(self) -> int | None:
        return self._retry_ms if self._missing else None

    def _heard(self, slice: SliceId, host: HostId) -> Announced | None:
        missing = self._missing[slice]
        missing.discard(host)
        if missing:
            return None
        del self._missing[slice]
        return Announced(self.newest[slice], self._sent.pop(slice))

    def _tell(self, now_ms: int, slices: Iterable[SliceId] | None = None) -> list[Transmit]:
        self._retry_ms = now_ms + RETRY_MS
        told = sorted(self._missing) if slices is None else slices
        return [Transmit(host, self.newest[slice]) for slice in told for host in sorted(self._missing[slice])]

    def save(self) -> SavedAnnouncements:
        return SavedAnnouncements(
            sorted(self.hosts),
            list(self.newest.values()),
            self._retry_ms,
            {slice: sorted(hosts) for slice, hosts in self._missing.items()},
            self._sent,
        )

    def load(self, saved: SavedAnnouncements) -> None:
        self.hosts = set(saved.hosts)
        self.newest = {route.slice: route for route in saved.newest}
        self._missing = {slice: set(hosts) for slice, hosts in saved.missing.items()}
        self._sent = {slice: dict(sent) for slice, sent in saved.sent.items()}
        self._retry_ms = saved.retry_ms
