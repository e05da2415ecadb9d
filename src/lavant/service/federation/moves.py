"""Moves of subscriptions to other brokers: starts them, and answers when the new broker delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lavant.broker.federation.effects import LinkEffect
from lavant.broker.federation.migration.machine import MigrationOutcome
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.federation import MoveSubscription, SubscriptionMigrated
from lavant.broker.queues.validation import refusal
from lavant.core.errors import LavantError, SubscriptionMoving

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks


class LocalSubscription(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    is_movable: bool
    """Whether it owns its queue, and does not move already."""


class SubscriptionMoves:
    """The moves that clients wait for, and what all of them came to."""

    def __init__(self, links: FederationLinks) -> None:
        self.completed = 0
        self.undone = 0
        self._links = links
        self._waiting: dict[tuple[str, str], list[tuple[Any, int]]] = {}
        """By subscription: clients, and the numbers of their requests."""
        links.machine.migrations.on_ended = self._ended

    def request(self, client: Any, number: int, request: MoveSubscription) -> None:
        """Start a move; the client is answered when it is complete or undone."""
        machine, key = self._links.machine, (request.namespace, request.name)

        def start(now_ms: int) -> list[LinkEffect]:
            try:
                effects = machine.move(request.namespace, request.name, request.broker, now_ms)
            except LavantError as error:
                return [Reply(client, number, refusal(error))]
            self._waiting.setdefault(key, []).append((client, number))
            return effects

        self._links.do(start)

    def local(self) -> list[LocalSubscription]:
        """The subscriptions at this broker, of all namespaces."""
        broker = self._links.machine.server.broker
        movable = {each.queue for each in broker.migrations.movable()}
        return [
            LocalSubscription(
                namespace=each.namespace, name=each.name, is_movable=each.owns_queue and each.queue in movable
            )
            for each in broker.subscriptions
        ]

    def _ended(self, outcome: MigrationOutcome) -> None:
        self.completed += outcome.is_complete
        self.undone += not outcome.is_complete
        for client, number in self._waiting.pop((outcome.namespace, outcome.name), []):
            self._links.machine.effects.append(Reply(client, number, self._answer(outcome)))

    def _answer(self, outcome: MigrationOutcome) -> Any:
        if outcome.is_complete:
            return SubscriptionMigrated(outcome.name, outcome.broker, outcome.address, outcome.pause_ms)
        return refusal(
            SubscriptionMoving(
                f"subscription {outcome.name!r} stays, {outcome.broker!r} cannot take it: {outcome.reason}"
            )
        )
