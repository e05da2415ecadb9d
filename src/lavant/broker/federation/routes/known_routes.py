"""Routes that are there already when a neighbour joins or the broker starts, derived step by step; then each change."""

from __future__ import annotations

from collections.abc import Hashable

from lavant.broker.federation.routes.encrypted_shapes import EncryptedShapes
from lavant.broker.federation.routes.router import ANYTHING, LOCAL, Router
from lavant.broker.federation.routes.tables import RouteTable
from lavant.broker.protocol.federation import AdvertisedRoute, BrokerMember, RouteEntry, SubscribedRoute
from lavant.broker.protocol.subscriptions import AdvertisementState, SubscriptionState
from lavant.broker.subscriptions.registry import Subscriptions


class KnownRoutes:
    """Without a neighbour, nobody is to be told of anything, and nothing is loaded."""

    def __init__(self, router: Router, shapes: EncryptedShapes, subscriptions: Subscriptions) -> None:
        self.is_loaded = False
        self._router = router
        self._shapes = shapes
        self._subscriptions = subscriptions

    def load(self, own: BrokerMember, *, requires_advertisements: bool) -> None:
        """Subscriptions and advertisements are deferred: there may be many."""
        self.is_loaded = True
        self._router.add(LOCAL, own)
        if not requires_advertisements:
            self._router.add(LOCAL, ANYTHING)
        _, subscribed, advertised = self._subscriptions.contents()
        states: list[SubscriptionState | AdvertisementState] = [*advertised, *subscribed]
        for state in states:
            entry = _entry(state)
            self._shapes.add(entry)
            self._router.defer(_key(state), LOCAL, entry)
        self._subscriptions.on_changed = self._changed

    def follow(self, neighbour: str, routes: RouteTable) -> None:
        """Defer what a neighbour told before; its members are known at once."""
        for key, entry in routes.items():
            if not isinstance(entry, BrokerMember):
                self._shapes.add(entry)
                self._router.defer((neighbour, key), neighbour, entry)

    def _changed(self, state: SubscriptionState | AdvertisementState, is_added: bool) -> None:
        """A local client subscribes or advertises, or ceases to."""
        entry = _entry(state)
        if is_added:
            self._shapes.add(entry)
            self._router.add(LOCAL, entry)
            return
        self._shapes.remove(entry)
        if not self._router.cancel(_key(state)):
            self._router.remove(LOCAL, entry)


def _entry(state: SubscriptionState | AdvertisementState) -> RouteEntry:
    if isinstance(state, SubscriptionState):
        return SubscribedRoute(state.namespace, state.filter)
    return AdvertisedRoute(state.namespace, state.filter)


def _key(state: SubscriptionState | AdvertisementState) -> Hashable:
    """Advertisements have no number; one that replaces another of its name is not deferred."""
    return state.number if isinstance(state, SubscriptionState) else (state.namespace, state.name, LOCAL)
