"""Small clusters for tests, written as {host: {slice: (cpu, state in MB)}}."""

from __future__ import annotations

from collections.abc import Mapping

from lavant.control.placement.config import HostCapacity, PlacementConfig
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.values import HostProbe, PlacementPlan, Probes, SliceProbe
from lavant.core.ids import HostId, SliceId

Cluster = Mapping[str, Mapping[str, tuple[float, int]]]

MB = 1_000_000
PROBE_MS = 5_000

# The paper's Figure 5: hosts at 74 % and 73 %. It prints which slices go, not what each of them uses; these figures are
# the simplest that agree with it. AP and EP have little state, M slices hold the subscriptions.
FIGURE_5: Cluster = {
    "host-1": {"AP:1": (0.12, 1), "AP:2": (0.12, 1), "M:1": (0.25, 200), "M:2": (0.25, 200)},
    "host-2": {"EP:1": (0.12, 8), "EP:2": (0.12, 8), "M:3": (0.24, 200), "M:4": (0.25, 200)},
}


def probes_of(cluster: Cluster, *, factor: float = 1.0, span_ms: int = 0) -> Probes:
    return Probes(
        span_ms=span_ms,
        hosts=tuple(
            HostProbe(
                id=HostId(host),
                slices=tuple(
                    SliceProbe(
                        id=SliceId(name), operator=name.partition(":")[0], cpu=cpu * factor, memory_bytes=mb * MB
                    )
                    for name, (cpu, mb) in slices.items()
                ),
            )
            for host, slices in cluster.items()
        ),
    )


def watched(cluster: Cluster, config: PlacementConfig, *, for_ms: int = 30_000, factor: float = 1.0) -> Enforcer:
    """An enforcer that has seen this cluster at the same load for a while, until `for_ms`."""
    enforcer = Enforcer(config)
    for now_ms in range(0, for_ms + 1, PROBE_MS):
        enforcer.observe(probes_of(cluster, factor=factor), now_ms)
    return enforcer


def plan_for(cluster: Cluster, config: PlacementConfig) -> PlacementPlan | None:
    return watched(cluster, config).decide(30_000)


def threshold(*, hosts_min: int = 1, hosts_max: int = 30, memory_mb: int = 8_000) -> PlacementConfig:
    capacity = HostCapacity(memory_bytes=memory_mb * MB)
    return PlacementConfig(policy="threshold", hosts_min=hosts_min, hosts_max=hosts_max, capacity=capacity)
