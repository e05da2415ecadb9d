"""The policy that looks ahead: earlier, evener, and reluctant to undo."""

from __future__ import annotations

from tests.unit.control.placement.clusters import PROBE_MS, Cluster, probes_of, watched

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.values import Placement, PlacementPlan

TWELVE: Cluster = {"a": {f"M:{n:02d}": (0.04, 100) for n in range(12)}}


def first_plan(
    cluster: Cluster, *, growth_per_s: float, config: PlacementConfig | None = None
) -> tuple[int, PlacementPlan]:
    """When, and what, for a load that grows from the cluster's."""
    enforcer = Enforcer(PlacementConfig() if config is None else config)
    for now_ms in range(0, 600_000, PROBE_MS):
        enforcer.observe(probes_of(cluster, factor=1.0 + growth_per_s * now_ms / 1000), now_ms)
        plan = enforcer.decide(now_ms)
        if plan is not None:
            return now_ms, plan
    raise AssertionError("no plan in ten minutes")


def test_a_host_is_added_before_the_rule_is_violated() -> None:
    now_ms, plan = first_plan(TWELVE, growth_per_s=0.005)
    load = 0.48 * (1 + 0.005 * now_ms / 1000)
    assert plan.decision.action == "scale out"
    assert load < 0.68
    assert plan.decision.figures["total_cpu_soon"] > load
    late_ms, _ = first_plan(TWELVE, growth_per_s=0.005, config=PlacementConfig(policy="threshold"))
    assert now_ms < late_ms


def test_a_steady_load_within_the_band_is_left_alone() -> None:
    enforcer = watched(TWELVE, PlacementConfig(), for_ms=300_000)
    assert enforcer.decide(300_000) is None


def test_among_equal_slices_those_with_little_state_move() -> None:
    cluster: Cluster = {"a": {f"M:{n}": (0.1, 500) for n in range(4)} | {f"AP:{n}": (0.1, 1) for n in range(4)}}
    _, plan = first_plan(cluster, growth_per_s=0.0)
    assert plan.moves
    assert {move.slice.partition(":")[0] for move in plan.moves} == {"AP"}


def test_hosts_are_not_released_soon_after_they_were_added() -> None:
    config = PlacementConfig()
    ten: Cluster = {"a": {f"M:{n}": (0.09, 1) for n in range(10)}}
    enforcer = watched(ten, config)
    plan = enforcer.decide(30_000)
    assert plan is not None
    placement = Placement.of_probes(probes_of(ten)).after(plan)
    fallen: Cluster = {host: {str(name): (0.05, 1) for name in names} for host, names in placement.by_host}
    released_ms = None
    for now_ms in range(35_000, 300_000, PROBE_MS):
        enforcer.observe(probes_of(fallen), now_ms)
        plan = enforcer.decide(now_ms)
        if plan is not None and plan.hosts_released:
            released_ms = now_ms
            break
    assert released_ms is not None
    assert released_ms >= 30_000 + config.forecast.rest_ms


def test_a_saturated_host_counts_for_more_than_it_shows() -> None:
    _, plan = first_plan({"a": {f"M:{n}": (0.1, 1) for n in range(10)}}, growth_per_s=0.0)
    assert plan.decision.figures["total_cpu"] > 1.5
    assert len(plan.hosts_added) >= 2


def test_a_single_slice_that_fills_a_host_is_reported_not_moved() -> None:
    _, plan = first_plan({"a": {"M:1": (0.9, 1)}}, growth_per_s=0.0)
    assert not plan.changes
    assert "no move of a slice would lower it" in plan.decision.reason


def test_the_limit_of_hosts_is_named() -> None:
    cluster: Cluster = {"a": {f"M:{n}": (0.2, 1) for n in range(4)}, "b": {f"M:{n}": (0.2, 1) for n in range(4, 8)}}
    _, plan = first_plan(cluster, growth_per_s=0.0, config=PlacementConfig(hosts_max=2))
    assert not plan.hosts_added
    assert "2 are the limit" in plan.decision.reason


def test_memory_is_never_overfilled_by_a_swap() -> None:
    full: Cluster = {"a": {"M:1": (0.5, 4000), "M:2": (0.3, 4000)}, "b": {"M:3": (0.1, 4000), "M:4": (0.1, 4000)}}
    enforcer = watched(full, PlacementConfig(hosts_max=2), for_ms=60_000)
    plan = enforcer.decide(60_000)
    assert plan is None or not plan.moves
