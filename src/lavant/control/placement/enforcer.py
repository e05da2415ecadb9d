"""The elasticity enforcer (e-StreamHub, Section V): a state machine that takes probes and returns plans.

    observe(probes, now_ms)   as often as there are probes; they also confirm the moves of the last plan
    decide(now_ms)            a plan, or None

               decide() = plan with changes
      ┌───────┐ ─────────────────────────► ┌─────────┐
      │ watch │                            │ pending │   no decisions while slices migrate
      └───────┘ ◄───────────────────────── └─────────┘
          probes show each slice off its source and released hosts gone, or `plan_ms_max` has passed

In `watch`, no plan comes within `grace_ms` of the last one. A plan without changes (it says why nothing can be done)
starts no grace period, but is not repeated within one. `snapshot()` and `restore()` keep the state over a restart of
the manager.
"""

from __future__ import annotations

import msgspec

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.policies.registry import policy_named
from lavant.control.placement.values import Placement, PlacementPlan, Probes
from lavant.control.placement.view import LoadView, TotalLoad
from lavant.control.placement.window import LoadSample, LoadWindow
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, InvalidValue
from lavant.core.ids import HostId

SNAPSHOT_VERSION = 1


class EnforcerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The enforcer's own history."""

    pending: PlacementPlan | None = None
    decided_ms: int | None = None
    held_ms: int | None = None
    grown_ms: int | None = None
    hosts_named: int = 0


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    remembered: EnforcerMemory
    samples: list[LoadSample]
    history: list[TotalLoad]


class Enforcer:
    """Decides on the placement of slices with the configured policy.

    >>> from lavant.control.placement.values import HostProbe, SliceProbe
    >>> enforcer = Enforcer(PlacementConfig(policy="threshold"))
    >>> slices = tuple(SliceProbe(id=f"M:{n}", operator="M", cpu=0.15) for n in range(5))
    >>> for now_ms in range(0, 31_000, 5_000):
    ...     enforcer.observe(Probes(hosts=(HostProbe(id="a", slices=slices),)), now_ms)
    >>> plan = enforcer.decide(30_000)
    >>> print(plan.decision.action, plan.hosts_added, [move.slice for move in plan.moves])
    scale out ('host-0001',) ['M:0', 'M:1']
    """

    def __init__(self, config: PlacementConfig) -> None:
        self.config = config
        self._policy = policy_named(config.policy)
        self._window = LoadWindow(config)
        self._past = EnforcerMemory()

    @property
    def pending(self) -> PlacementPlan | None:
        """The plan that is being carried out."""
        return self._past.pending

    def observe(self, probes: Probes, now_ms: int) -> None:
        """Take one set of probes of all hosts and slices."""
        if self._window.samples and now_ms < self._window.samples[-1].time_ms:
            raise InvalidValue(
                f"probes of {now_ms} ms came after those of {self._window.samples[-1].time_ms} ms; send them in order"
            )
        self._window.add(probes, now_ms)
        if self._past.pending is not None and not _is_under_way(self._past.pending, probes):
            self._past = msgspec.structs.replace(self._past, pending=None)

    def decide(self, now_ms: int) -> PlacementPlan | None:
        """A plan, if one is needed and due."""
        self._give_up_late_plan(now_ms)
        if self._past.pending is not None or self._is_in_grace(now_ms) or not self._knows_hosts(now_ms):
            return None
        plan = self._policy.decide(self.view(now_ms))
        if plan is None:
            return None
        return self._decided(plan, now_ms) if plan.changes else self._held(plan, now_ms)

    def view(self, now_ms: int) -> LoadView:
        """The policy's input, also for dashboards. Requires earlier probes."""
        return LoadView(
            now_ms=now_ms,
            config=self.config,
            hosts=tuple(host.id for host in self._window.samples[-1].probes.hosts),
            slices=self._window.slice_loads(),
            average_range=self._window.average_range(now_ms),
            host_ranges=self._window.host_ranges(now_ms),
            history=tuple(self._window.history),
            grown_ms=self._past.grown_ms,
            hosts_named=self._past.hosts_named,
        )

    def snapshot(self) -> bytes:
        """Everything that later decisions depend on, except the configuration."""
        return msgspec.msgpack.encode(
            _Snapshot(
                version=SNAPSHOT_VERSION,
                remembered=self._past,
                samples=self._window.samples,
                history=self._window.history,
            )
        )

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot."""
        try:
            found = msgspec.msgpack.decode(data, type=_Snapshot)
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"not a snapshot of a placement enforcer: {error}; start without it") from None
        if found.version != SNAPSHOT_VERSION:
            raise CorruptSnapshot(
                f"the snapshot has format version {found.version}, this is {SNAPSHOT_VERSION}; start without it"
            )
        self._past = found.remembered
        self._window.samples = found.samples
        self._window.history = found.history

    def _is_in_grace(self, now_ms: int) -> bool:
        return self._past.decided_ms is not None and now_ms - self._past.decided_ms < self.config.rules.grace_ms

    def _knows_hosts(self, now_ms: int) -> bool:
        return self._window.is_current(now_ms) and bool(self._window.samples[-1].probes.hosts)

    def _give_up_late_plan(self, now_ms: int) -> None:
        decided_ms = self._past.decided_ms
        if decided_ms is not None and now_ms - decided_ms > self.config.plan_ms_max:
            self._past = msgspec.structs.replace(self._past, pending=None)

    def _decided(self, plan: PlacementPlan, now_ms: int) -> PlacementPlan:
        prefix = f"{self.config.host_prefix}-"
        numbers = [int(host.removeprefix(prefix)) for host in plan.hosts_added]
        self._past = msgspec.structs.replace(
            self._past,
            pending=plan,
            decided_ms=now_ms,
            grown_ms=now_ms if plan.hosts_added else self._past.grown_ms,
            hosts_named=max([self._past.hosts_named, *numbers]),
        )
        return plan

    def _held(self, plan: PlacementPlan, now_ms: int) -> PlacementPlan | None:
        if self._past.held_ms is not None and now_ms - self._past.held_ms < self.config.rules.grace_ms:
            return None
        self._past = msgspec.structs.replace(self._past, held_ms=now_ms)
        return plan


def _is_under_way(plan: PlacementPlan, probes: Probes) -> bool:
    """Whether a move is pending. A slice that is gone, or on a third host, no longer is: probes overrule the plan."""
    placement = Placement.of_probes(probes)
    hosts: set[HostId] = set(placement.hosts)
    return any(placement.host_of.get(move.slice) == move.source for move in plan.moves) or any(
        host in hosts for host in plan.hosts_released
    )
