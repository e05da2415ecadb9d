"""Carries out plans in virtual time with the real manager and hosts, whose slices are those of the flow.

A plan goes through three stages (e-StreamHub, Section IV-B): added hosts start; slices move, each by the migration of
`lavant.broker.slices`; emptied hosts are released. Messages and machines are the real ones. Only time is modelled: a
fixed time per message, a state by its size, one after the other from one host; and a slice stops when it has finished
its waiting tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from lavant.broker.slices.migration.host import SliceHost
from lavant.broker.slices.migration.manager import Join, Leave, ManagerStimulus, MigrationManager, Relocate, Relocated
from lavant.broker.slices.migration.messages import (
    AnyMessage,
    Command,
    DataReceived,
    LinkTimerDue,
    SliceState,
    Stop,
    Transmit,
)
from lavant.control.placement.values import Placement, PlacementPlan
from lavant.core.ids import HostId, SliceId
from lavant.simulation.kernel.calendar import Calendar, Entry
from lavant.simulation.placement.cluster import ClusterConfig, state_bytes
from lavant.simulation.placement.flow import Flow

MANAGER = HostId("manager")


class MigrationPause(msgspec.Struct, frozen=True):
    """A slice that did not run while it moved."""

    slice: SliceId
    start_s: float
    end_s: float


class MigrationDriver:
    """Hosts, the manager, and the messages between them."""

    def __init__(
        self, config: ClusterConfig, flow: Flow, calendar: Calendar, placement: Mapping[SliceId, HostId]
    ) -> None:
        self.moves: list[Relocated] = []
        self.pauses: list[MigrationPause] = []
        self.state_bytes = 0
        self._config = config
        self._flow = flow
        self._calendar = calendar
        self._layout = config.layout
        self._number = {slice: number for number, slice in enumerate(self._layout.slices)}
        self._manager = MigrationManager(placement)
        self._hosts: dict[HostId, SliceHost] = {}
        self._places: dict[HostId, int] = {}
        """Hosts by their slot in the flow; slots are reused."""
        self._copying_until_us: dict[HostId, int] = {}
        self._paused_s: dict[SliceId, float] = {}
        self._due: Entry | None = None
        self._starting: set[HostId] = set()
        self._plan: PlacementPlan | None = None
        self._is_moving = False
        for host in sorted(set(placement.values())):
            self._add(host, placement)
        for slice, host in placement.items():
            flow.run(self._number[slice], self._places[host], 0.0)

    @property
    def placement(self) -> Placement:
        return Placement.of(self._hosts, self._manager.placement)

    @property
    def hosts_paid(self) -> int:
        return len(self._hosts) + len(self._starting)

    @property
    def is_idle(self) -> bool:
        return self._plan is None

    def start(self, plan: PlacementPlan) -> None:
        """Start a plan; there is one at a time."""
        assert self._plan is None, "the enforcer waits for the end of its plans"
        self._plan = plan
        self._starting = set(plan.hosts_added)
        if self._starting:
            self._after(self._config.host_start_ms, self._hosts_are_up, plan.hosts_added)
        else:
            self._move()

    # ── stages of a plan ──────────────────────────────────────────────────────────────────────────────────────────────

    def _hosts_are_up(self, hosts: Iterable[HostId]) -> None:
        for host in hosts:
            self._add(host, self._manager.placement)
            self._starting.discard(host)
            self._tell_manager(Join(host))
        self._move()

    def _add(self, host: HostId, placement: Mapping[SliceId, HostId]) -> None:
        place = min(set(range(len(self._places) + 1)) - set(self._places.values()))
        self._flow.begin_host(place, self._now_s)
        self._places[host] = place
        self._hosts[host] = SliceHost(host, self._layout, MANAGER, placement)

    def _move(self) -> None:
        assert self._plan is not None
        for move in self._plan.moves:
            self._tell_manager(Relocate(move.slice, move.destination))
        self._is_moving = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not self._is_moving or not self._manager.is_idle:
            return
        assert self._plan is not None
        self._is_moving = False
        for host in self._plan.hosts_released:
            if not self._hosts[host].slices:  # it keeps those of migrations that were abandoned
                self._tell_manager(Leave(host))
                del self._hosts[host], self._places[host]
        self._plan = None

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell_manager(self, stimulus: ManagerStimulus) -> None:
        for effect in self._manager.handle(stimulus, self._now_ms):
            if isinstance(effect, Transmit):
                self._after(self._config.message_ms, self._arrive, effect.to, effect.message)
            elif isinstance(effect, Relocated):
                self.moves.append(effect)
                if effect.is_moved:
                    self.state_bytes += state_bytes(self._config, effect.slice)
        self._arm()
        self._end_if_done()

    def _arm(self) -> None:
        if self._due is not None:
            self._calendar.cancel(self._due)
            self._due = None
        wakeup_ms = self._manager.wakeup_ms()
        if wakeup_ms is not None:
            self._due = self._calendar.enter(max(self._calendar.now_us, 1000 * wakeup_ms), self._ring)

    def _ring(self) -> None:
        self._due = None
        self._tell_manager(LinkTimerDue())

    def _arrive(self, host: HostId, message: Command | SliceState) -> None:
        """A message arrives at a host; a slice that is to stop finishes its waiting tasks first."""
        if host not in self._hosts:
            return
        if isinstance(message, Stop) and message.slice not in self._paused_s:
            self._paused_s[message.slice] = self._now_s
            self._flow.advance(self._now_s)
            drained_s = self._flow.pause(self._number[message.slice])
            self._after(1000 * max(0.0, drained_s - self._now_s), self._take, host, message)
        else:
            self._take(host, message)

    def _take(self, host: HostId, message: Command | SliceState) -> None:
        machine, slice = self._hosts[host], message.slice
        for effect in machine.handle(DataReceived(MANAGER, message), self._now_ms):
            assert isinstance(effect, Transmit), "there is nothing to refuse"
            if isinstance(effect.message, SliceState):
                self._copy(host, effect.to, effect.message)
            elif effect.to == MANAGER:
                self._after(self._config.message_ms, self._answer, host, effect.message)
        hosted = machine.slices.get(slice)
        if hosted is not None and hosted.is_running and slice in self._paused_s and hosted.stop is None:
            self._run(slice, host)

    def _answer(self, host: HostId, message: AnyMessage) -> None:
        self._tell_manager(DataReceived(host, message))

    def _copy(self, source: HostId, destination: HostId, state: SliceState) -> None:
        size = state_bytes(self._config, state.slice)
        began_us = max(self._calendar.now_us, self._copying_until_us.get(source, 0))
        ended_us = began_us + round(1e6 * size / self._config.copy_bytes_per_s)
        self._copying_until_us[source] = ended_us
        self._calendar.enter(ended_us + 1000 * self._config.message_ms, self._arrive, destination, state)

    def _run(self, slice: SliceId, host: HostId) -> None:
        self._flow.advance(self._now_s)
        self._flow.run(self._number[slice], self._places[host], self._now_s)
        self.pauses.append(MigrationPause(slice, self._paused_s.pop(slice), self._now_s))

    def _after(self, delay_ms: float, action: Callable[..., object], *arguments: object) -> None:
        self._calendar.enter(self._calendar.now_us + round(1000 * delay_ms), action, *arguments)

    @property
    def _now_s(self) -> float:
        return self._calendar.now_us / 1e6

    @property
    def _now_ms(self) -> int:
        return self._calendar.now_us // 1000
