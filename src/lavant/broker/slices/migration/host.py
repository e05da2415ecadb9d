"""A host that runs slices: the links between them, and its part in migrations.

It is a state machine over messages, and its state must survive crashes: the world records each received message before
it sends what follows from it, and replays the record on restart; the machine is deterministic, so the state is the
same, and repeated sends have the same numbers. Durable are therefore the slices with their vectors, their waiting
inputs, their unacknowledged outputs, their roles, the routes, and which migrations are settled. Timers and sent
acknowledgements are not durable.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lavant.broker.slices.layout import SliceLayout
from lavant.broker.slices.links import RESEND_MS, Item
from lavant.broker.slices.migration.hosted_slice import Hosted, MovedSlice, Role, SavedSlice
from lavant.broker.slices.migration.messages import (
    Ack,
    AnyMessage,
    Copied,
    Create,
    Data,
    DataReceived,
    LinkTimerDue,
    Route,
    Routed,
    Settle,
    Settled,
    SliceCreated,
    SliceState,
    Stop,
    Stopped,
    Transmit,
)
from lavant.broker.slices.migration.route_announcements import SliceRoutes
from lavant.broker.slices.values import SliceRefusal
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId

HostEffect = Transmit | SliceRefusal


class _Saved(msgspec.Struct, frozen=True):
    slices: dict[SliceId, SavedSlice]
    routes: list[Route]
    settled: dict[SliceId, int]


class SliceHost:
    """The slices of one host. `manager` gets all answers about migrations, regardless of the command's sender."""

    def __init__(self, id: HostId, layout: SliceLayout, manager: HostId, placement: Mapping[SliceId, HostId]) -> None:
        """A host at system start; `placement` locates everything, including sources and sink."""
        self.id = id
        self.layout = layout
        self.routes = SliceRoutes(placement)
        self.slices = {
            slice: Hosted(slice, layout, Role.ACTIVE) for slice in layout.slices if placement.get(slice) == id
        }
        self._manager = manager
        self._settled: dict[SliceId, int] = {}
        """The last migration of each slice that is over, as far as this host knows."""
        self._senders: dict[tuple[SliceId, SliceId], HostId] = {}
        """The origin of the last data on each link, which waits for its acknowledgement."""
        self._acknowledged: dict[tuple[SliceId, SliceId], int] = {}
        self._wakeup_ms: int | None = 0
        """A lower bound of the next resend."""

    def handle(self, stimulus: DataReceived | LinkTimerDue, now_ms: int) -> list[HostEffect]:
        """Take a message, or resend unacknowledged items."""
        if isinstance(stimulus, LinkTimerDue):
            return self._resend(now_ms)
        message = stimulus.message
        match message:
            case Data():
                return self._data(stimulus.source, message, now_ms)
            case Ack(upstream=upstream, to=to, sequence=sequence):
                hosted = self.slices.get(upstream)
                return [] if hosted is None else self._sent(hosted, hosted.acknowledge(to, sequence, now_ms), now_ms)
            case Route():
                return self._route(message)
            case Create():
                return self._create(message)
            case Stop():
                return self._stop(message)
            case SliceState():
                return self._state(message)
            case Settle():
                return self._settle(message, now_ms)
            case _:
                raise InvalidValue(f"host {self.id} does not take {type(message).__name__}")

    def wakeup_ms(self) -> int | None:
        return self._wakeup_ms

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _data(self, source: HostId, data: Data, now_ms: int) -> list[HostEffect]:
        hosted = self.slices.get(data.to)
        if hosted is None:
            return []  # it was here, and the sender does not know yet that it moved
        link = data.upstream, data.to
        self._senders[link] = source
        if hosted.machine.vector.get(data.upstream, 0) >= data.sequence:
            self._acknowledged.pop(link, None)  # the acknowledgement was lost
        return self._sent(hosted, hosted.deliver(data.upstream, data.sequence, data.content, now_ms), now_ms)

    def _sent(self, hosted: Hosted, items: list[Item | SliceRefusal], now_ms: int) -> list[HostEffect]:
        """Send the slice's outputs, acknowledge its processed inputs, and perhaps stop it."""
        effects: list[HostEffect] = []
        for item in items:
            if isinstance(item, Item):
                effects += self._transmit(hosted.machine.id, item)
            else:
                effects.append(item)
        if items:
            self._wake(now_ms + RESEND_MS)
        if hosted.role is Role.STOPPING:
            effects += self._stop_if_reached(hosted)
        if hosted.is_running or hosted.role is Role.STOPPED:
            effects += self._acknowledge(hosted)
        return effects

    def _transmit(self, upstream: SliceId, item: Item) -> list[HostEffect]:
        data = Data(upstream, item.to, item.sequence, item.content)
        return [Transmit(host, data) for host in self.routes.hosts(item.to)]

    def _acknowledge(self, hosted: Hosted) -> list[HostEffect]:
        slice, effects = hosted.machine.id, list[HostEffect]()
        for upstream, sequence in hosted.machine.vector.items():
            sender = self._senders.get((upstream, slice))
            if sender is not None and self._acknowledged.get((upstream, slice), 0) < sequence:
                self._acknowledged[upstream, slice] = sequence
                effects.append(Transmit(sender, Ack(upstream, slice, sequence)))
        return effects

    def _resend(self, now_ms: int) -> list[HostEffect]:
        effects: list[HostEffect] = []
        self._wakeup_ms = None
        for slice, hosted in self.slices.items():
            for item in hosted.outlet.resend(now_ms):
                effects += self._transmit(slice, item)
            wakeup_ms = hosted.outlet.wakeup_ms()
            if wakeup_ms is not None:
                self._wake(wakeup_ms)
        return effects

    def _wake(self, time_ms: int) -> None:
        if self._wakeup_ms is None or time_ms < self._wakeup_ms:
            self._wakeup_ms = time_ms

    # ── migrations ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _route(self, route: Route) -> list[HostEffect]:
        self.routes.take(route)
        sent = {
            slice: hosted.machine.sent(route.slice)
            for slice, hosted in self.slices.items()
            if hosted.machine.sent(route.slice)
        }
        return self._answer(Routed(route.version, route.slice, sent))

    def _create(self, create: Create) -> list[HostEffect]:
        if self._is_over(create.slice, create.migration):
            return []
        if create.slice not in self.slices:
            self.slices[create.slice] = Hosted(create.slice, self.layout, Role.WAITING, create.migration)
            self._forget_links(create.slice)
        return self._answer(SliceCreated(create.migration, create.slice))

    def _stop(self, stop: Stop) -> list[HostEffect]:
        hosted = self.slices.get(stop.slice)
        if hosted is None or self._is_over(stop.slice, stop.migration):
            return []
        if hosted.role is Role.ACTIVE:
            hosted.role, hosted.migration, hosted.stop = Role.STOPPING, stop.migration, stop
        if hosted.role is Role.STOPPED:
            return self._send_state(hosted, stop)
        return self._stop_if_reached(hosted)

    def _stop_if_reached(self, hosted: Hosted) -> list[HostEffect]:
        stop = hosted.stop
        if stop is None or not hosted.has_reached(stop.after):
            return []
        hosted.become(Role.STOPPED, stop.migration, 0)
        return self._send_state(hosted, stop)

    def _send_state(self, hosted: Hosted, stop: Stop) -> list[HostEffect]:
        state = msgspec.msgpack.encode(hosted.moved())
        return [
            *self._answer(Stopped(stop.migration, stop.slice)),
            Transmit(stop.destination, SliceState(stop.migration, stop.slice, state)),
        ]

    def _state(self, state: SliceState) -> list[HostEffect]:
        hosted = self.slices.get(state.slice)
        if hosted is None or hosted.migration != state.migration or self._is_over(state.slice, state.migration):
            return []
        if hosted.role is Role.WAITING:
            hosted.take(msgspec.msgpack.decode(state.state, type=MovedSlice))
            hosted.role = Role.COPIED
        return self._answer(Copied(state.migration, state.slice, len(state.state)))

    def _settle(self, settle: Settle, now_ms: int) -> list[HostEffect]:
        effects: list[HostEffect] = []
        hosted = self.slices.get(settle.slice)
        if not self._is_over(settle.slice, settle.migration):
            self._settled[settle.slice] = settle.migration
            if hosted is not None:
                is_new = hosted.role in (Role.WAITING, Role.COPIED)
                if is_new == settle.is_moved:
                    assert hosted.role is not Role.WAITING, "it is decided that a slice is moved when its state is here"
                    effects = self._sent(hosted, hosted.become(Role.ACTIVE, settle.migration, now_ms), now_ms)
                    self._wake(now_ms)
                else:
                    del self.slices[settle.slice]
                    self._forget_links(settle.slice)
        return [*effects, *self._answer(Settled(settle.migration, settle.slice))]

    def _is_over(self, slice: SliceId, migration: int) -> bool:
        return migration <= self._settled.get(slice, 0)

    def _forget_links(self, slice: SliceId) -> None:
        for links in (self._senders, self._acknowledged):
            for link in [link for link in links if slice in link]:
                del links[link]

    def _answer(self, message: AnyMessage) -> list[HostEffect]:
        return [Transmit(self._manager, message)]

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def restart(self) -> None:
        """Call after a crash: the clock may differ, so timers restart."""
        for hosted in self.slices.values():
            hosted.outlet.restart()
        self._wakeup_ms = 0

    def snapshot(self) -> bytes:
        slices = {slice: hosted.save() for slice, hosted in self.slices.items()}
        return msgspec.msgpack.encode(_Saved(slices, self.routes.save(), self._settled))

    def restore(self, snapshot: bytes) -> None:
        saved = msgspec.msgpack.decode(snapshot, type=_Saved)
        self.slices = {slice: Hosted.load(slice, self.layout, state) for slice, state in saved.slices.items()}
        self.routes.load(saved.routes)
        self._settled = dict(saved.settled)
        self._wakeup_ms = 0
