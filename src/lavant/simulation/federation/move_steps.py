"""Tells a world of each step of a move, so that it can crash brokers right there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.migration.state import Arrival, Departure
from lavant.broker.protocol.commands import Command


class MoveStep(msgspec.Struct, frozen=True):
    """For the world: this broker has applied a step of a move."""

    command: str
    subscription: str
    migration: str


class SteppedMachine(FederationMachine):
    """Adds a `MoveStep` to the effects of each step."""

    def record(
        self, command: Command, then: Callable[[Any], None] | None = None, *, grows: bool = True, queue: str = ""
    ) -> None:
        migrations, migration = self.server.broker.migrations, getattr(command, "migration", "")
        before: dict[str, Departure | Arrival] = {**migrations.departures, **migrations.arrivals}
        super().record(command, then, grows=grows, queue=queue)
        known = {**before, **migrations.departures, **migrations.arrivals}
        if migration in known:
            step = MoveStep(type(command).__name__, known[migration].name, migration)
            self.effects.append(step)  # type: ignore[arg-type]
