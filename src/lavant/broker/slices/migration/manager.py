"""The manager (e-StreamHub, Section IV-B): knows where every slice is, and conducts migrations.

The enforcer (`lavant.control.placement`) decides what to move. Like a host, the manager is a state machine whose state
must survive crashes, by any means of the world: a record of its stimuli or, as in the paper, ZooKeeper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from lavant.broker.slices.migration.messages import AnyMessage, DataReceived, LinkTimerDue, Routed, Transmit
from lavant.broker.slices.migration.migration import (
    Announce,
    Migration,
    MigrationConfig,
    MigrationEffect,
    MigrationOrder,
    MigrationStep,
    SavedMigration,
)
from lavant.broker.slices.migration.route_announcements import Announced, RouteAnnouncements, SavedAnnouncements
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import HostId, SliceId

WAITING_MAX = 100_000
"""Moves that wait for others: as many as there may be slices."""


class Relocate(msgspec.Struct, frozen=True, tag="Relocate"):
    """Move a slice; if it is migrating, from its next location. No effect if it is already there."""

    slice: SliceId
    destination: HostId


class Join(msgspec.Struct, frozen=True, tag="Join"):
    """A host has started."""

    host: HostId


class Leave(msgspec.Struct, frozen=True, tag="Leave"):
    """A host without slices, present or planned, is gone for good."""

    host: HostId


class Relocated(msgspec.Struct, frozen=True, kw_only=True):
    """A migration has ended, successfully or not."""

    slice: SliceId
    source: HostId
    destination: HostId
    is_moved: bool
    size_bytes: int
    began_ms: int
    ended_ms: int


class MigrationDecided(msgspec.Struct, frozen=True):
    """The slice's location is final from now on, though not all hosts may know."""

    slice: SliceId
    host: HostId


ManagerStimulus: TypeAlias = DataReceived | Relocate | Join | Leave | LinkTimerDue
ManagerEffect: TypeAlias = Transmit | Relocated | MigrationDecided


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    migration: MigrationConfig = MigrationConfig()
    at_once_max: int = 4
    """Concurrent migrations. Each pauses one slice, so keep them few."""

    def __post_init__(self) -> None:
        if self.at_once_max < 1:
            raise InvalidValue(f"at_once_max must be 1 or more, got {self.at_once_max}")


class _Saved(msgspec.Struct, frozen=True):
    placement: dict[SliceId, HostId]
    number: int
    migrations: list[tuple[SavedMigration, int]]
    waiting: list[Relocate]
    announcing: SavedAnnouncements


class MigrationManager:
    """Running migrations by slice, and moves that wait."""

    def __init__(
        self, placement: Mapping[SliceId, HostId], edges: Iterable[HostId] = (), config: ManagerConfig | None = None
    ) -> None:
        """`placement` is the initial location of slices; `edges` are hosts without slices that send to some."""
        self.config = ManagerConfig() if config is None else config
        self.placement = dict(placement)
        self.migrations: dict[SliceId, Migration] = {}
        self._began_ms: dict[SliceId, int] = {}
        self._number = 0
        self.waiting: deque[Relocate] = deque()
        """Moves that wait for others."""
        self._announcing = RouteAnnouncements({*placement.values(), *edges}, placement)

    @property
    def hosts(self) -> set[HostId]:
        return self._announcing.hosts

    @property
    def is_idle(self) -> bool:
        return not self.migrations and not self.waiting

    def handle(self, stimulus: ManagerStimulus, now_ms: int) -> list[ManagerEffect]:
        match stimulus:
            case DataReceived(source=source, message=message):
                effects = self._received(source, message, now_ms)
            case Relocate():
                self._require_possible(stimulus)
                self.waiting.append(stimulus)
                effects = []
            case Join(host=host):
                effects = [*self._announcing.join(host, now_ms)]
            case Leave(host=host):
                effects = self._leave(host, now_ms)
            case LinkTimerDue():
                effects = [*self._announcing.due(now_ms)]
                for migration in list(self.migrations.values()):
                    wakeup_ms = migration.wakeup_ms()
                    if wakeup_ms is not None and wakeup_ms <= now_ms:
                        effects += self._advance(migration, stimulus, now_ms)
        return [*effects, *self._begin_waiting(now_ms)]

    def wakeup_ms(self) -> int | None:
        wishes = [self._announcing.wakeup_ms(), *(migration.wakeup_ms() for migration in self.migrations.values())]
        return min((wish for wish in wishes if wish is not None), default=None)

    def _received(self, source: HostId, message: AnyMessage, now_ms: int) -> list[ManagerEffect]:
        if isinstance(message, Routed):
            announced = self._announcing.routed(source, message)
            return [] if announced is None else self._announced(announced, now_ms)
        slice, number = getattr(message, "slice", None), getattr(message, "migration", None)
        migration = self.migrations.get(slice) if slice is not None else None
        if migration is None or number != migration.order.number:
            return []  # of a migration that is over
        return self._advance(migration, DataReceived(source, message), now_ms)

    def _announced(self, announced: Announced, now_ms: int) -> list[ManagerEffect]:
        migration = self.migrations.get(announced.route.slice)
        return [] if migration is None else self._advance(migration, announced, now_ms)

    def _require_possible(self, move: Relocate) -> None:
        if move.slice not in self.placement:
            raise InvalidValue(f"there is no slice {move.slice!r}; there are {', '.join(sorted(self.placement))}")
        if move.destination not in self.hosts:
            raise InvalidValue(f"slice {move.slice} cannot move to {move.destination!r}, which has not joined")
        if len(self.waiting) >= WAITING_MAX:
            raise LimitExceeded(f"{WAITING_MAX} moves wait already; ask for fewer at once")

    def _leave(self, host: HostId, now_ms: int) -> list[ManagerEffect]:
        users = [slice for slice, at in self.placement.items() if at == host]
        users += [slice for slice, m in self.migrations.items() if host in (m.order.source, m.order.destination)]
        users += [move.slice for move in self.waiting if move.destination == host]
        if users:
            raise InvalidValue(f"host {host} cannot leave, it has slice {users[0]} or is to get it; move it first")
        return [effect for done in self._announcing.leave(host) for effect in self._announced(done, now_ms)]

    def _begin_waiting(self, now_ms: int) -> list[ManagerEffect]:
        """Start moves in the order of the requests. A slice makes one move at a time, and a host gives away one slice
        at a time: two copies would share its network, and both slices would pause longer.
        """
        effects: list[ManagerEffect] = []
        blocked: list[Relocate] = []
        giving = {migration.order.source for migration in self.migrations.values()}
        while self.waiting and len(self.migrations) < self.config.at_once_max:
            move = self.waiting.popleft()
            source = self.placement[move.slice]
            if source in giving or move.slice in self.migrations or any(move.slice == b.slice for b in blocked):
                blocked.append(move)
            elif source != move.destination:
                giving.add(source)
                effects += self._begin(move, now_ms)
        self.waiting.extendleft(reversed(blocked))
        return effects

    def _begin(self, move: Relocate, now_ms: int) -> list[ManagerEffect]:
        self._number += 1
        order = MigrationOrder(
            number=self._number, slice=move.slice, source=self.placement[move.slice], destination=move.destination
        )
        migration = self.migrations[move.slice] = Migration(order, self.config.migration)
        self._began_ms[move.slice] = now_ms
        return self._perform(migration.begin(now_ms), now_ms)

    def _advance(
        self, migration: Migration, stimulus: DataReceived | Announced | LinkTimerDue, now_ms: int
    ) -> list[ManagerEffect]:
        before = migration.step
        effects = self._perform(migration.handle(stimulus, now_ms), now_ms)
        order = migration.order
        if migration.step is MigrationStep.SWITCHING is not before:
            self.placement[order.slice] = order.destination
            effects.append(MigrationDecided(order.slice, order.destination))
        if migration.is_over:
            del self.migrations[order.slice]
            effects.append(
                Relocated(
                    slice=order.slice,
                    source=order.source,
                    destination=order.destination,
                    is_moved=migration.step is MigrationStep.MOVED,
                    size_bytes=migration.size_bytes,
                    began_ms=self._began_ms.pop(order.slice),
                    ended_ms=now_ms,
                )
            )
        return effects

    def _perform(self, effects: list[MigrationEffect], now_ms: int) -> list[ManagerEffect]:
        performed: list[ManagerEffect] = []
        for effect in effects:
            if isinstance(effect, Announce):
                performed += self._announcing.announce(effect.route, now_ms)
            else:
                performed.append(effect)
        return performed

    def restart(self) -> None:
        """Call after a crash, and record it: the clock may differ, so timers restart."""
        for migration in self.migrations.values():
            migration.restart()
        self._announcing.restart()

    def snapshot(self) -> bytes:
        migrations = [(m.save(), self._began_ms[slice]) for slice, m in self.migrations.items()]
        return msgspec.msgpack.encode(
            _Saved(self.placement, self._number, migrations, list(self.waiting), self._announcing.save())
        )

    def restore(self, snapshot: bytes) -> None:
        saved = msgspec.msgpack.decode(snapshot, type=_Saved)
        self.placement = dict(saved.placement)
        self._number = saved.number
        self.migrations = {
            state.order.slice: Migration.load(state, self.config.migration) for state, _ in saved.migrations
        }
        self._began_ms = {state.order.slice: began_ms for state, began_ms in saved.migrations}
        self.waiting = deque(saved.waiting)
        self._announcing.load(saved.announcing)
