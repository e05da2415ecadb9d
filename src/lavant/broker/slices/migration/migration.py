"""The migration of one slice, as the manager conducts it (e-StreamHub, Section IV-A, Figure 3).

    step         sends                      to               until                      then
    ───────────  ─────────────────────────  ───────────────  ─────────────────────────  ─────────────────────
    CREATING     Create                     destination      Created                    DUPLICATING
    DUPLICATING  Route to both              all hosts        all have it                STOPPING
    STOPPING     Stop, after this vector    source           Stopped, or Copied         COPYING, or SWITCHING
    COPYING      Stop, for the state again  source           Copied (by destination)    SWITCHING
    SWITCHING    Settle: moved              both             both Settled, and          MOVED
                 Route to the destination   all hosts        all have the route
    ───────────  ─────────────────────────  ───────────────  ─────────────────────────  ─────────────────────
    ABANDONING   Settle: not moved          both             both Settled, and          ABANDONED
                 Route to the source        all hosts        all have the route

    CREATING, DUPLICATING, STOPPING and COPYING have a deadline; when it passes, ABANDONING is next.

The paper's five steps are these: the new slice is created, inactive (1); upstream slices send to both, and the new one
queues its inputs (2); the old one stops when it has processed everything that was sent to it alone, so that the queues
overlap (3); its state is copied with its timestamp vector, and the new one continues after it (4); the old one is
removed (5).

Why nothing is lost or duplicated. The migration is decided on entry into SWITCHING or ABANDONING; the manager keeps its
step over crashes, and never decides twice. "Moved" is decided when the destination has the state durably, which it can
have only of a slice that stopped for good. So there is at most one running instance at any time. Whichever continues
has the vector of everything processed, and drops repetitions; unprocessed inputs are not acknowledged, so upstream
slices still have them and send them again. Duplicating the input is not needed for that: it only spares the new slice
from waiting for it.

A deadline never decides against a slice that may have moved: after SWITCHING the manager repeats its messages forever.
While a host is down, this delays only the end of the migration, not the slice.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from lavant.broker.slices.migration.messages import (
    Copied,
    Create,
    DataReceived,
    LinkTimerDue,
    Route,
    Settle,
    Settled,
    SliceCreated,
    Stop,
    Stopped,
    Transmit,
)
from lavant.broker.slices.migration.route_announcements import Announced
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId


class MigrationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`deadline_ms` covers everything before the decision; it must suffice for the largest state."""

    deadline_ms: int = 30_000
    retry_ms: int = 300
    copy_retry_ms: int = 5_000
    """After this the state is requested again; it may be large."""

    def __post_init__(self) -> None:
        for name in ("deadline_ms", "retry_ms", "copy_retry_ms"):
            if getattr(self, name) <= 0:
                raise InvalidValue(f"migration {name} must be positive, got {getattr(self, name)}")


class MigrationOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The move to make. Numbers grow with each migration of a slice."""

    number: int
    slice: SliceId
    source: HostId
    destination: HostId


class MigrationStep(enum.Enum):
    CREATING = "creating"
    DUPLICATING = "duplicating"
    STOPPING = "stopping"
    COPYING = "copying"
    SWITCHING = "switching"
    ABANDONING = "abandoning"
    MOVED = "moved"
    ABANDONED = "abandoned"


UNDECIDED = frozenset(
    {MigrationStep.CREATING, MigrationStep.DUPLICATING, MigrationStep.STOPPING, MigrationStep.COPYING}
)
OVER = frozenset({MigrationStep.MOVED, MigrationStep.ABANDONED})


class Announce(msgspec.Struct, frozen=True):
    """Tell all hosts, and report when they have it."""

    route: Route


MigrationEffect: TypeAlias = Transmit | Announce


class SavedMigration(msgspec.Struct, frozen=True):
    order: MigrationOrder
    step: MigrationStep
    deadline_ms: int | None
    retry_ms: int
    after: dict[SliceId, int]
    unsettled: list[HostId]
    is_announced: bool
    size_bytes: int


class Migration:
    """One migration, from `begin` until it `is_over`."""

    def __init__(self, order: MigrationOrder, config: MigrationConfig) -> None:
        self.order = order
        self.step = MigrationStep.CREATING
        self.size_bytes = 0
        """Size of the copied state."""
        self._config = config
        self._deadline_ms: int | None = None
        """Unknown after a restart: the clock may differ, so the deadline restarts."""
        self._retry_ms = 0
        self._after: dict[SliceId, int] = {}
        self._unsettled: set[HostId] = set()
        self._is_announced = False

    @property
    def is_over(self) -> bool:
        return self.step in OVER

    def begin(self, now_ms: int) -> list[MigrationEffect]:
        self._deadline_ms = now_ms + self._config.deadline_ms
        return self._say(now_ms)

    def handle(self, stimulus: DataReceived | Announced | LinkTimerDue, now_ms: int) -> list[MigrationEffect]:
        """Take an answer, or notice that there was none. Answers of other migrations do not get here."""
        step = self.step
        match stimulus:
            case Announced(route=route, sent=sent):
                return self._announced(route, sent, now_ms)
            case DataReceived(message=SliceCreated()) if step is MigrationStep.CREATING:
                return self._enter(MigrationStep.DUPLICATING, now_ms)
            case DataReceived(message=Stopped()) if step is MigrationStep.STOPPING:
                self.step = MigrationStep.COPYING  # nothing to send: the state is on its way
                self._retry_ms = now_ms + self._config.copy_retry_ms
            case DataReceived(message=Copied(size_bytes=size_bytes)) if step in (
                MigrationStep.STOPPING,
                MigrationStep.COPYING,
            ):
                self.size_bytes = size_bytes
                return self._enter(MigrationStep.SWITCHING, now_ms)
            case DataReceived(source=source, message=Settled()):
                self._unsettled.discard(source)
                self._end_if_done()
            case LinkTimerDue():
                return self._due(now_ms)
        return []

    def wakeup_ms(self) -> int | None:
        if self.is_over:
            return None
        if self.step not in UNDECIDED:
            return self._retry_ms if self._unsettled else None
        if self._deadline_ms is None:
            return 0
        return self._deadline_ms if self.step is MigrationStep.DUPLICATING else min(self._retry_ms, self._deadline_ms)

    def _due(self, now_ms: int) -> list[MigrationEffect]:
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + self._config.deadline_ms
        if self.step in UNDECIDED and now_ms >= self._deadline_ms:
            return self._enter(MigrationStep.ABANDONING, now_ms)
        if self.is_over or self.step is MigrationStep.DUPLICATING or now_ms < self._retry_ms:
            return []
        return self._say(now_ms)

    def _announced(self, route: Route, sent: dict[SliceId, int], now_ms: int) -> list[MigrationEffect]:
        if self.step is MigrationStep.DUPLICATING and route.version == self._version:
            self._after = sent
            return self._enter(MigrationStep.STOPPING, now_ms)
        if self.step in (MigrationStep.SWITCHING, MigrationStep.ABANDONING) and route.version == self._version:
            self._is_announced = True
            self._end_if_done()
        return []

    def _enter(self, step: MigrationStep, now_ms: int) -> list[MigrationEffect]:
        self.step = step
        order = self.order
        effects: list[MigrationEffect] = []
        if step is MigrationStep.DUPLICATING:
            effects.append(Announce(Route(self._version, order.slice, (order.source, order.destination))))
        elif step in (MigrationStep.SWITCHING, MigrationStep.ABANDONING):
            self._unsettled = {order.source, order.destination}
            host = order.destination if step is MigrationStep.SWITCHING else order.source
            effects.append(Announce(Route(self._version, order.slice, (host,))))
        return effects + self._say(now_ms)

    @property
    def _version(self) -> int:
        """Version of this step's route: two for each migration, the second when it is decided."""
        return 2 * self.order.number + (0 if self.step in UNDECIDED else 1)

    def _say(self, now_ms: int) -> list[MigrationEffect]:
        """The messages of this step to hosts, first or repeated."""
        order, step = self.order, self.step
        self._retry_ms = now_ms + (
            self._config.copy_retry_ms if step is MigrationStep.COPYING else self._config.retry_ms
        )
        if step is MigrationStep.CREATING:
            return [Transmit(order.destination, Create(order.number, order.slice))]
        if step in (MigrationStep.STOPPING, MigrationStep.COPYING):
            return [Transmit(order.source, Stop(order.number, order.slice, order.destination, self._after))]
        if step in (MigrationStep.SWITCHING, MigrationStep.ABANDONING):
            settle = Settle(order.number, order.slice, step is MigrationStep.SWITCHING)
            return [Transmit(host, settle) for host in sorted(self._unsettled)]
        return []

    def _end_if_done(self) -> None:
        if (
            not self._unsettled
            and self._is_announced
            and self.step in (MigrationStep.SWITCHING, MigrationStep.ABANDONING)
        ):
            self.step = MigrationStep.MOVED if self.step is MigrationStep.SWITCHING else MigrationStep.ABANDONED

    def restart(self) -> None:
        """Repeat the last messages at once, and restart the deadline."""
        self._deadline_ms, self._retry_ms = None, 0

    def save(self) -> SavedMigration:
        return SavedMigration(
            self.order,
            self.step,
            self._deadline_ms,
            self._retry_ms,
            self._after,
            sorted(self._unsettled),
            self._is_announced,
            self.size_bytes,
        )

    @classmethod
    def load(cls, saved: SavedMigration, config: MigrationConfig) -> Migration:
        """Continue a saved migration."""
        migration = cls(saved.order, config)
        migration.step = saved.step
        migration.size_bytes = saved.size_bytes
        migration._deadline_ms, migration._retry_ms = saved.deadline_ms, saved.retry_ms
        migration._after = dict(saved.after)
        migration._unsettled = set(saved.unsettled)
        migration._is_announced = saved.is_announced
        return migration
