"""A slice on a host: the machine, its outlet, and its role in a migration.

    role      message                               then
    ────────  ────────────────────────────────────  ──────────────────────────────────────────────────────────
    (none)    Create                                WAITING    the new one: keeps its inputs
    WAITING   State                                 COPIED     has the state, and will continue after its vector
    COPIED    Settle, moved                         ACTIVE
    WAITING,  Settle, not moved                     (none)
    COPIED
    ACTIVE    Stop                                  STOPPING   the old one: continues up to the vector of `Stop`
    STOPPING  has processed up to it                STOPPED    sends its state, and does nothing more
    STOPPED   Settle, moved                         (none)
    STOPPING, Settle, not moved                     ACTIVE     continues as before
    STOPPED

At most one instance of a slice is ACTIVE or STOPPING: it becomes so only by `Settle`, whose content the manager decides
once for each migration; and it says "moved" only when the old one has stopped for good.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from lavant.broker.slices import wire
from lavant.broker.slices.factory import make_slice
from lavant.broker.slices.layout import SliceLayout
from lavant.broker.slices.links import Item, Outlet
from lavant.broker.slices.machine import SliceMachine
from lavant.broker.slices.migration.messages import Stop
from lavant.broker.slices.values import Allow, Content, Effect, Emit, SliceDelivery, SliceRefusal
from lavant.core.ids import SliceId


class Role(enum.Enum):
    WAITING = "waiting"
    COPIED = "copied"
    ACTIVE = "active"
    STOPPING = "stopping"
    STOPPED = "stopped"


class MovedSlice(msgspec.Struct, frozen=True):
    """A slice in transit to another host, without waiting inputs: they are not acknowledged, so they come again."""

    machine: bytes
    items: list[Item]


class SavedSlice(msgspec.Struct, frozen=True):
    """The complete state of a slice. A host restored from it behaves exactly as before."""

    state: MovedSlice
    role: Role
    migration: int
    stop: Stop | None
    waiting: list[tuple[SliceId, int, bytes]]


class Hosted:
    """One slice on one host."""

    def __init__(self, id: SliceId, layout: SliceLayout, role: Role, migration: int = 0) -> None:
        self.machine: SliceMachine = make_slice(id, layout)
        self.outlet = Outlet()
        self.role = role
        self.migration = migration
        self.stop: Stop | None = None
        self.machine.handle(self._room(), 0)

    @property
    def is_running(self) -> bool:
        return self.role in (Role.ACTIVE, Role.STOPPING)

    def deliver(self, upstream: SliceId, sequence: int, content: bytes, now_ms: int) -> list[Item | SliceRefusal]:
        """Process an input and return the slice's outputs; a repeated one is not even decoded."""
        if sequence <= self.machine.vector.get(upstream, 0):
            return []
        return self._proceed(SliceDelivery(upstream, sequence, wire.decode(content)), now_ms)

    def acknowledge(self, to: SliceId, sequence: int, now_ms: int) -> list[Item | SliceRefusal]:
        """Acknowledge outputs, which may make room for waiting inputs."""
        self.outlet.acknowledge(to, sequence, now_ms)
        return self._proceed(self._room(), now_ms)

    def become(self, role: Role, migration: int, now_ms: int) -> list[Item | SliceRefusal]:
        """Change role, and process waiting inputs if the new role allows it."""
        self.role, self.migration = role, migration
        if role is not Role.STOPPING:
            self.stop = None
        return self._proceed(self._room(), now_ms)

    def has_reached(self, vector: dict[SliceId, int]) -> bool:
        return all(self.machine.vector.get(upstream, 0) >= sequence for upstream, sequence in vector.items())

    def moved(self) -> MovedSlice:
        return MovedSlice(self.machine.snapshot(), self.outlet.save())

    def take(self, state: MovedSlice) -> None:
        """Adopt this state, to continue after its vector."""
        self.machine.restore(state.machine)
        self.outlet = Outlet.load(state.items)

    def save(self) -> SavedSlice:
        inputs = self.machine.inputs_waiting()
        waiting = [(delivery.upstream, delivery.sequence, wire.encode(delivery.content)) for delivery in inputs]
        return SavedSlice(self.moved(), self.role, self.migration, self.stop, waiting)

    @classmethod
    def load(cls, id: SliceId, layout: SliceLayout, saved: SavedSlice) -> Hosted:
        hosted = cls(id, layout, Role.WAITING, saved.migration)
        hosted.take(saved.state)
        for upstream, sequence, content in saved.waiting:
            hosted.machine.handle(SliceDelivery(upstream, sequence, wire.decode(content)), 0)
        hosted.role, hosted.stop = saved.role, saved.stop
        assert not hosted.machine.handle(hosted._room(), 0), "waiting inputs had a reason to wait"
        return hosted

    def _room(self) -> Allow:
        """An input makes at most one item per link, so as many inputs fit as items."""
        return Allow(self.outlet.room if self.is_running else 0)

    def _proceed(self, stimulus: SliceDelivery | Allow, now_ms: int) -> list[Item | SliceRefusal]:
        """Process as many inputs as possible. Many make no item, so there may be more room than was allowed for."""
        items = list(self._kept(self.machine.handle(stimulus, now_ms), now_ms))
        while True:
            waiting = self.machine.waiting
            items += self._kept(self.machine.handle(self._room(), now_ms), now_ms)
            if self.machine.waiting == waiting:
                return items

    def _kept(self, effects: list[Effect], now_ms: int) -> Iterator[Item | SliceRefusal]:
        known: tuple[Content, bytes] | None = None  # items for all match slices are encoded once
        for effect in effects:
            if isinstance(effect, Emit):
                if known is None or known[0] is not effect.content:
                    known = effect.content, wire.encode(effect.content)
                item = Item(effect.to, effect.sequence, known[1])
                self.outlet.keep(item, now_ms)
                yield item
            else:
                yield effect
