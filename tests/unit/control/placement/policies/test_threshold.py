"""The paper's policy: which rule acts, which slices move, and what is said where nothing can be done."""

from __future__ import annotations

import pytest
from tests.unit.control.placement.clusters import FIGURE_5, Cluster, plan_for, probes_of, threshold

from lavant.control.placement.values import Placement, PlacementPlan
from lavant.core.ids import SliceId


def moved(plan: PlacementPlan | None) -> dict[str, str]:
    assert plan is not None
    return {move.slice: move.destination for move in plan.moves}


def test_figure_5_moves_the_access_and_exit_slices_to_one_new_host() -> None:
    plan = plan_for(FIGURE_5, threshold())
    assert plan is not None
    assert plan.hosts_added == ("host-0001",)
    assert moved(plan) == dict.fromkeys(("AP:1", "AP:2", "EP:1", "EP:2"), "host-0001")
    assert plan.hosts_released == ()
    assert plan.decision.action == "scale out"
    assert plan.decision.reason == "average CPU was at least 73.5% for 30 s, above 70%"
    assert plan.decision.figures["state_bytes"] == 18_000_000
    assert plan.decision.time_ms == 30_000


def test_slices_fill_present_hosts_up_to_the_target_before_a_new_one_is_added() -> None:
    cluster: Cluster = {
        "a": {"M:1": (0.3, 1), "M:2": (0.3, 1), "M:3": (0.35, 1)},
        "b": {"M:4": (0.3, 1), "M:5": (0.3, 1), "M:6": (0.35, 1)},
        "c": {"M:7": (0.3, 1)},
    }
    plan = plan_for({**cluster, "d": {"M:8": (0.95, 1)}}, threshold())
    assert plan is not None
    after = Placement.of_probes(probes_of({**cluster, "d": {"M:8": (0.95, 1)}})).after(plan)
    assert after.host_of[SliceId("M:8")] == "d"
    assert len(plan.hosts_added) == 4  # four slices of 0.3 have to go, and two do not fit into one target


def test_scale_in_releases_the_least_loaded_hosts_and_stays_below_the_global_maximum() -> None:
    cluster: Cluster = {
        "a": {"M:1": (0.25, 1)},
        "b": {"M:2": (0.20, 1)},
        "c": {"M:3": (0.22, 1)},
        "d": {"M:4": (0.28, 1)},
    }
    plan = plan_for(cluster, threshold())
    assert plan is not None
    assert plan.decision.action == "scale in"
    assert plan.hosts_released == ("b", "c")
    assert moved(plan) == {"M:2": "a", "M:3": "a"}
    assert plan.decision.figures["average_cpu_after"] == pytest.approx(0.475)


def test_without_any_load_all_hosts_but_the_least_number_are_released() -> None:
    plan = plan_for({host: {f"M:{host}": (0.0, 1)} for host in "abcd"}, threshold(hosts_min=1))
    assert plan is not None
    assert len(plan.hosts_released) == 3


def test_fewer_hosts_are_released_if_memory_does_not_allow_more() -> None:
    cluster: Cluster = {host: {f"M:{host}": (0.2, 60)} for host in "abcd"}
    plan = plan_for(cluster, threshold(memory_mb=125))
    assert plan is not None
    assert plan.hosts_released == ("a", "b")
    held = plan_for(cluster, threshold(memory_mb=100))
    assert held is not None
    assert not held.changes
    assert "find room" in held.decision.reason


def test_the_least_number_of_hosts_is_kept_without_a_word() -> None:
    assert plan_for({"a": {"M:1": (0.1, 1)}, "b": {}}, threshold(hosts_min=2)) is None


def test_an_overloaded_host_gives_to_the_others_up_to_the_local_maximum() -> None:
    cluster: Cluster = {
        "a": {"AP:1": (0.35, 1), "M:1": (0.25, 100), "M:2": (0.25, 100)},
        "b": {"M:3": (0.40, 100)},
    }
    plan = plan_for(cluster, threshold())
    assert moved(plan) == {"AP:1": "b"}
    assert plan is not None
    assert plan.decision.action == "rebalance"
    assert plan.decision.reason == "CPU of a was at least 85.0% for 30 s, above 80%"


def test_an_underloaded_host_is_emptied_and_released() -> None:
    plan = plan_for({"a": {"M:1": (0.5, 1)}, "b": {"M:2": (0.15, 1)}}, threshold())
    assert moved(plan) == {"M:2": "a"}
    assert plan is not None
    assert plan.hosts_released == ("b",)


def test_an_underloaded_host_stays_if_the_others_would_be_overloaded_without_it() -> None:
    plan = plan_for({"a": {"M:1": (0.68, 1)}, "b": {"M:2": (0.15, 1)}}, threshold())
    assert plan is not None
    assert not plan.changes
    assert plan.decision.action == "hold"
    assert "without it the average would be 83.0%" in plan.decision.reason


def test_a_slice_larger_than_a_host_is_named_and_left_where_it_is() -> None:
    plan = plan_for({"a": {"M:1": (1.2, 1)}}, threshold())
    assert plan is not None
    assert not plan.changes
    assert "slice M:1 alone takes 120% of a" in plan.decision.reason
    assert "give operator M more slices" in plan.decision.reason


def test_the_others_leave_a_host_whose_largest_slice_is_above_the_target() -> None:
    plan = plan_for({"a": {"M:1": (0.7, 1), "M:2": (0.2, 100)}}, threshold())
    assert moved(plan) == {"M:2": "host-0001"}


def test_at_the_limit_of_hosts_slices_go_to_the_least_loaded_and_the_decision_says_so() -> None:
    cluster: Cluster = {
        "a": {"M:1": (0.4, 1), "M:2": (0.3, 1), "M:3": (0.3, 1)},
        "b": {"M:4": (0.45, 1)},
    }
    plan = plan_for(cluster, threshold(hosts_max=2))
    assert plan is not None
    assert moved(plan) == {"M:2": "b"}
    assert "2 hosts are the limit" in plan.decision.reason


def test_at_the_limit_of_hosts_with_all_full_nothing_moves_and_the_decision_says_so() -> None:
    cluster: Cluster = {host: {f"M:{host}{n}": (0.3, 1) for n in range(3)} for host in "ab"}
    plan = plan_for(cluster, threshold(hosts_max=2))
    assert plan is not None
    assert not plan.changes
    assert "no host has CPU, memory and network for" in plan.decision.reason


def test_a_slice_with_more_memory_than_a_host_is_not_sent_to_a_new_one() -> None:
    cluster: Cluster = {"a": {"M:1": (0.45, 900), "M:2": (0.45, 800)}}
    plan = plan_for(cluster, threshold(memory_mb=500))
    assert plan is not None
    assert not plan.changes
    assert "no host has CPU, memory and network for M:2" in plan.decision.reason
