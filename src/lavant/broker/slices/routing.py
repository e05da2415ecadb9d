"""Where each slice is, as one host knows it: on one host, or while it moves on two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lavant.broker.slices.messages import Route
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId


class Routes:
    """The newest route to each slice. Versions grow, so that what comes late changes nothing."""

    def __init__(self, placement: Mapping[SliceId, HostId]) -> None:
        self._routes = {slice: Route(0, slice, (host,)) for slice, host in placement.items()}

    def hosts(self, slice: SliceId) -> tuple[HostId, ...]:
        route = self._routes.get(slice)
        if route is None:
            raise InvalidValue(f"nobody has said where {slice!r} is; give its host in the placement")
        return route.hosts

    def take(self, route: Route) -> None:
        known = self._routes.get(route.slice)
        if known is None or known.version < route.version:
            self._routes[route.slice] = route

    def save(self) -> list[Route]:
        return list(self._routes.values())

    def load(self, routes: Iterable[Route]) -> None:
        self._routes = {route.slice: route for route in routes}
