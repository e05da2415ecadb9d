"""The machine: windows, grace, moves under way, and what survives a restart."""

from __future__ import annotations

import pytest
from tests.unit.control.placement.clusters import FIGURE_5, PROBE_MS, Cluster, probes_of, threshold, watched

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.values import Probes
from lavant.core.errors import CorruptSnapshot, InvalidValue

FIGURE_5_AFTER: Cluster = {
    "host-1": {name: FIGURE_5["host-1"][name] for name in ("M:1", "M:2")},
    "host-2": {name: FIGURE_5["host-2"][name] for name in ("M:3", "M:4")},
    "host-0001": dict.fromkeys(("AP:1", "AP:2", "EP:1", "EP:2"), (0.12, 1)),
}


def test_a_rule_that_is_violated_for_less_than_the_window_does_nothing() -> None:
    assert watched(FIGURE_5, threshold(), for_ms=25_000).decide(25_000) is None


def test_one_probe_within_the_rule_starts_the_window_anew() -> None:
    enforcer = watched(FIGURE_5, threshold(), for_ms=20_000)
    enforcer.observe(probes_of(FIGURE_5, factor=0.9), 25_000)
    for now_ms in range(30_000, 60_000, PROBE_MS):
        enforcer.observe(probes_of(FIGURE_5), now_ms)
        assert enforcer.decide(now_ms) is None
    enforcer.observe(probes_of(FIGURE_5), 60_000)
    assert enforcer.decide(60_000) is not None


def test_a_gap_in_the_probes_starts_the_window_anew() -> None:
    enforcer = watched(FIGURE_5, threshold(), for_ms=20_000)
    enforcer.observe(probes_of(FIGURE_5), 40_000)
    assert enforcer.decide(40_000) is None


@pytest.mark.parametrize("policy", ["threshold", "forecast"])
@pytest.mark.parametrize("batch_ms", [16_000, 25_000, 50_000])
def test_measurements_of_long_batches_leave_no_gap(policy: str, batch_ms: int) -> None:
    enforcer = Enforcer(PlacementConfig(policy=policy))
    for now_ms in range(0, 3 * batch_ms, batch_ms):
        enforcer.observe(probes_of(FIGURE_5, span_ms=batch_ms), now_ms)
    plan = enforcer.decide(2 * batch_ms)
    assert plan is not None
    assert plan.hosts_added


def test_what_measurements_do_not_cover_is_a_gap() -> None:
    enforcer = watched(FIGURE_5, threshold(), for_ms=20_000)
    enforcer.observe(probes_of(FIGURE_5, span_ms=4_000), 40_000)
    assert enforcer.decide(40_000) is None


def test_stale_probes_decide_nothing() -> None:
    assert watched(FIGURE_5, threshold()).decide(50_000) is None


@pytest.mark.parametrize("policy", ["static", "threshold", "forecast"])
def test_without_probes_or_hosts_there_is_no_decision(policy: str) -> None:
    enforcer = Enforcer(PlacementConfig(policy=policy))
    assert enforcer.decide(0) is None
    for now_ms in range(0, 60_000, PROBE_MS):
        enforcer.observe(Probes(hosts=()), now_ms)
        assert enforcer.decide(now_ms) is None


def test_nothing_is_decided_while_slices_are_on_their_way() -> None:
    enforcer = watched(FIGURE_5, threshold())
    plan = enforcer.decide(30_000)
    assert enforcer.pending == plan
    for now_ms in range(35_000, 150_000, PROBE_MS):
        enforcer.observe(probes_of(FIGURE_5), now_ms)
        assert enforcer.decide(now_ms) is None


def test_a_plan_that_is_not_carried_out_in_time_is_given_up_and_its_host_names_are_not_used_again() -> None:
    enforcer = watched(FIGURE_5, threshold())
    enforcer.decide(30_000)
    for now_ms in range(35_000, 155_001, PROBE_MS):
        enforcer.observe(probes_of(FIGURE_5), now_ms)
    plan = enforcer.decide(155_000)
    assert plan is not None
    assert plan.hosts_added == ("host-0002",)


def test_probes_confirm_the_moves_and_the_grace_period_holds() -> None:
    enforcer = watched(FIGURE_5, threshold())
    enforcer.decide(30_000)
    for now_ms in range(35_000, 60_000, PROBE_MS):
        enforcer.observe(probes_of(FIGURE_5_AFTER, factor=2.0), now_ms)
        assert enforcer.pending is None
        assert enforcer.decide(now_ms) is None
    enforcer.observe(probes_of(FIGURE_5_AFTER, factor=2.0), 60_000)
    assert enforcer.decide(60_000) is not None


def test_a_plan_without_changes_is_not_repeated_within_the_grace_period() -> None:
    lonely: Cluster = {"a": {"M:1": (0.95, 1)}}
    enforcer = watched(lonely, threshold())
    said = []
    for now_ms in range(30_000, 90_001, PROBE_MS):
        enforcer.observe(probes_of(lonely), now_ms)
        if enforcer.decide(now_ms) is not None:
            said.append(now_ms)
    assert said == [30_000, 60_000, 90_000]


def test_a_restored_enforcer_goes_on_where_the_other_was() -> None:
    first = watched(FIGURE_5, threshold())
    first.decide(30_000)
    second = Enforcer(threshold())
    second.restore(first.snapshot())
    assert second.pending == first.pending
    assert second.snapshot() == first.snapshot()


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x80"])
def test_a_broken_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot, match="start without it"):
        Enforcer(PlacementConfig()).restore(data)


def test_probes_that_go_back_in_time_are_refused() -> None:
    enforcer = watched(FIGURE_5, threshold())
    with pytest.raises(InvalidValue, match="send them in order"):
        enforcer.observe(probes_of(FIGURE_5), 29_999)


def test_probes_that_come_far_too_often_do_not_fill_the_memory() -> None:
    enforcer = Enforcer(threshold())
    for now_ms in range(0, 60_000, 50):
        enforcer.observe(probes_of({"a": {"M:1": (0.5, 1)}}), now_ms)
    assert len(enforcer.snapshot()) < 60_000


def test_an_unknown_policy_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(InvalidValue, match="'magic'; choose one of forecast, static, threshold"):
        Enforcer(PlacementConfig(policy="magic"))


def test_the_unit_of_cpu_is_that_of_the_host_capacity() -> None:
    cores = {host: {name: (cpu * 8, mb) for name, (cpu, mb) in slices.items()} for host, slices in FIGURE_5.items()}
    config = threshold()
    eight = PlacementConfig(policy="threshold", capacity=type(config.capacity)(cpu=8.0))
    assert watched(cores, eight).decide(30_000) == watched(FIGURE_5, config).decide(30_000)
