"""One policy against one load curve, and the figures by which policies are compared."""

from __future__ import annotations

import msgspec
import numpy as np

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.values import Placement
from lavant.core.decisions import Decision
from lavant.core.ids import HostId
from lavant.simulation.placement.cluster import ClusterConfig, Slices, host_loads, probes_of
from lavant.simulation.placement.curves import Curve
from lavant.simulation.placement.manager import Manager


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What happened. The loads of single hosts are means over a probe interval; a host without slices has none, and
    too little load is no fault of a cluster that has its least number of hosts."""

    policy: str
    hosts: list[int]
    """Paid for, at each probe."""
    load_lowest: list[float]
    load_highest: list[float]
    """Of single hosts, at each probe."""
    host_s_above: float
    host_s_below: float
    moves: int
    state_bytes: int
    host_hours: float
    decisions: list[Decision]

    @property
    def host_s_outside(self) -> float:
        """Host-seconds with a load outside of the local rule's band."""
        return self.host_s_above + self.host_s_below

    @property
    def load_max(self) -> float:
        return max(self.load_highest)

    @property
    def load_min(self) -> float:
        """The lowest load while there was more than one host."""
        return min((low for low, hosts in zip(self.load_lowest, self.hosts, strict=True) if hosts > 1), default=0.0)


def run_trial(
    curve: Curve, config: PlacementConfig, *, seed: int, cluster: ClusterConfig | None = None, hosts_at_start: int = 1
) -> Trial:
    """Feed the curve to a cluster under the policy that the configuration names.

    >>> from lavant.simulation.placement.curves import ramp
    >>> trial = run_trial(ramp(rise_s=300, hold_s=60), PlacementConfig(policy="threshold"), seed=1)
    >>> trial.hosts[0], max(trial.hosts) > 8, trial.hosts[-1] < 5
    (1, True, True)
    """
    cluster = ClusterConfig() if cluster is None else cluster
    slices = Slices(cluster, seed)
    first = [HostId(f"{config.host_prefix}-{n:04d}") for n in range(1, hosts_at_start + 1)]
    start = Placement.of(first, {s: first[i % hosts_at_start] for i, s in enumerate(slices.ids)})
    manager = Manager(start, slices, host_start_ms=cluster.host_start_ms)
    enforcer = Enforcer(config)
    record = _Record(config, cluster)
    needed = np.zeros(len(slices.ids))
    steps = cluster.probe_ms // cluster.step_ms
    for step in range(1, len(curve) * 1000 // cluster.step_ms + 1):
        now_ms = step * cluster.step_ms
        rate = float(curve[(now_ms - 1) // 1000])
        manager.advance(now_ms)
        needed += slices.step(rate) / steps
        if step % steps:
            continue
        enforcer.observe(probes_of(manager.placement, slices, needed, rate), now_ms)
        plan = enforcer.decide(now_ms)
        if plan is not None:
            record.decisions.append(plan.decision)
            if plan.changes:
                manager.start(plan, now_ms)
        record.add(manager, host_loads(manager.placement, slices, needed))
        needed = np.zeros(len(slices.ids))
    return record.result(manager)


class _Record:
    def __init__(self, config: PlacementConfig, cluster: ClusterConfig) -> None:
        self._config = config
        self._interval_s = cluster.probe_ms / 1000
        self.hosts: list[int] = []
        self.lowest: list[float] = []
        self.highest: list[float] = []
        self.above = self.below = 0
        self.decisions: list[Decision] = []

    def add(self, manager: Manager, loads: dict[HostId, float]) -> None:
        band = self._config.rules.host
        self.hosts.append(manager.hosts_paid)
        self.lowest.append(min(loads.values()))
        self.highest.append(max(loads.values()))
        self.above += sum(load > band.high for load in loads.values())
        if manager.hosts_paid > self._config.hosts_min:
            self.below += sum(load < band.low for load in loads.values())

    def result(self, manager: Manager) -> Trial:
        return Trial(
            policy=self._config.policy,
            hosts=self.hosts,
            load_lowest=self.lowest,
            load_highest=self.highest,
            host_s_above=self.above * self._interval_s,
            host_s_below=self.below * self._interval_s,
            moves=manager.moves,
            state_bytes=manager.state_bytes,
            host_hours=sum(self.hosts) * self._interval_s / 3600,
            decisions=self.decisions,
        )
