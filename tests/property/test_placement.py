"""Any cluster, any policy: a plan keeps each slice on one host and every capacity, and depends on the probes alone."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from lavant.control.placement.config import HostCapacity, PlacementConfig
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.policies.registry import POLICIES
from lavant.control.placement.policies.threshold import UNITS, select_slices, units
from lavant.control.placement.values import HostProbe, Placement, PlacementPlan, Probes, SliceProbe
from lavant.control.placement.view import SliceLoad
from lavant.core.ids import HostId, SliceId

PROBE_MS = 5_000
CAPACITY = HostCapacity(memory_bytes=1000, network_bytes_per_s=1000.0)

policies = st.sampled_from(sorted(POLICIES))
sizes = st.integers(0, 600)


@st.composite
def clusters(draw: st.DrawFn) -> Probes:
    """Hosts with slices of all sizes, heavy ones often enough that rules are violated."""
    scale = draw(st.sampled_from([0.05, 0.2, 0.5, 1.3]))
    shares = st.integers(0, 1000).map(lambda n: scale * n / 1000)
    hosts = []
    for number in range(draw(st.integers(1, 6))):
        slices = tuple(
            SliceProbe(
                id=SliceId(f"M:{number}.{index}"),
                operator="M",
                cpu=draw(shares),
                memory_bytes=draw(sizes),
                network_bytes_per_s=float(draw(sizes)),
            )
            for index in range(draw(st.integers(0, 6)))
        )
        hosts.append(HostProbe(id=HostId(f"h{number}"), slices=slices))
    return Probes(hosts=tuple(hosts))


@st.composite
def configs(draw: st.DrawFn) -> PlacementConfig:
    hosts_min = draw(st.integers(1, 3))
    hosts_max = hosts_min + draw(st.integers(0, 8))
    return PlacementConfig(policy=draw(policies), capacity=CAPACITY, hosts_min=hosts_min, hosts_max=hosts_max)


def scaled(probes: Probes, factor: float) -> Probes:
    return Probes(
        hosts=tuple(
            HostProbe(
                id=host.id,
                slices=tuple(
                    SliceProbe(
                        id=probe.id,
                        operator=probe.operator,
                        cpu=probe.cpu * factor,
                        memory_bytes=probe.memory_bytes,
                        network_bytes_per_s=probe.network_bytes_per_s,
                    )
                    for probe in host.slices
                ),
            )
            for host in probes.hosts
        )
    )


def shuffled(probes: Probes, seed: int) -> Probes:
    dice = random.Random(seed)
    hosts = [HostProbe(id=h.id, slices=tuple(dice.sample(h.slices, len(h.slices)))) for h in probes.hosts]
    return Probes(hosts=tuple(dice.sample(hosts, len(hosts))))


def watch(enforcer: Enforcer, probes: Probes, *, until_ms: int = 40_000, growth: float = 0.0) -> PlacementPlan | None:
    """The first plan, if any, while the load changes by `growth` with each set of probes."""
    for now_ms in range(0, until_ms + 1, PROBE_MS):
        enforcer.observe(scaled(probes, 1.0 + growth * now_ms / PROBE_MS), now_ms)
        plan = enforcer.decide(now_ms)
        if plan is not None:
            return plan
    return None


def used(probes: Probes, placement: Placement, host: HostId) -> tuple[int, float]:
    on_host = [probe for h in probes.hosts for probe in h.slices if placement.host_of[probe.id] == host]
    return sum(probe.memory_bytes for probe in on_host), sum(probe.network_bytes_per_s for probe in on_host)


def is_within(probes: Probes, placement: Placement, host: HostId) -> bool:
    memory, network = used(probes, placement, host)
    return memory <= CAPACITY.memory_bytes and network <= CAPACITY.network_bytes_per_s


growths = st.sampled_from([-0.1, -0.03, 0.0, 0.03, 0.2])


@given(clusters(), configs(), growths)
@settings(max_examples=200)
def test_after_any_plan_every_slice_is_on_one_existing_host(
    probes: Probes, config: PlacementConfig, growth: float
) -> None:
    before = Placement.of_probes(probes)
    plan = watch(Enforcer(config), probes, growth=growth)
    if plan is None:
        return
    after = before.after(plan)  # refuses slices on unknown hosts, so released hosts are empty
    assert sorted(after.host_of) == sorted(before.host_of)
    assert not set(after.hosts) & set(plan.hosts_released)
    assert set(plan.hosts_added) <= set(after.host_of.values())
    assert len(after.hosts) <= max(config.hosts_max, len(before.hosts))
    assert len(after.hosts) >= min(config.hosts_min, len(before.hosts))
    assert plan.decision.reason
    assert (plan.decision.action == "hold") == (not plan.changes)


@given(clusters(), configs(), growths)
@settings(max_examples=200)
def test_no_step_of_a_plan_overfills_memory_or_network(probes: Probes, config: PlacementConfig, growth: float) -> None:
    plan = watch(Enforcer(config), probes, growth=growth)
    if plan is None:
        return
    placement = Placement.of_probes(probes).after(PlacementPlan(decision=plan.decision, hosts_added=plan.hosts_added))
    for move in plan.moves:
        placement = placement.after(PlacementPlan(decision=plan.decision, moves=(move,)))
        assert is_within(probes, placement, move.destination)


@given(clusters(), configs(), growths, st.integers(0, 100))
def test_the_order_of_probes_decides_nothing(probes: Probes, config: PlacementConfig, growth: float, seed: int) -> None:
    first = watch(Enforcer(config), probes, growth=growth)
    assert watch(Enforcer(config), shuffled(probes, seed), growth=growth) == first


@given(clusters(), configs(), growths, st.integers(1, 15))
def test_a_restart_changes_no_decision(probes: Probes, config: PlacementConfig, growth: float, restart: int) -> None:
    steady, restarted = Enforcer(config), Enforcer(config)
    for step in range(20):
        if step == restart:
            data = restarted.snapshot()
            restarted = Enforcer(config)
            restarted.restore(data)
        current = scaled(probes, 1.0 + max(-0.9, growth * step))
        for enforcer in (steady, restarted):
            enforcer.observe(current, step * PROBE_MS)
        assert steady.decide(step * PROBE_MS) == restarted.decide(step * PROBE_MS)


@st.composite
def slice_sets(draw: st.DrawFn) -> list[SliceLoad]:
    cpus = draw(st.lists(st.integers(0, 300), max_size=8))
    return [
        SliceLoad(
            id=SliceId(f"s{index}"),
            operator="M",
            host=HostId("a"),
            cpu=cpu / UNITS,
            memory_bytes=draw(st.integers(0, 4)),
            network_bytes_per_s=0.0,
        )
        for index, cpu in enumerate(cpus)
    ]


@given(slice_sets(), st.integers(1, 1000))
@settings(max_examples=300)
def test_the_selection_is_the_best_of_all_sets(slices: list[SliceLoad], need: int) -> None:
    useful = [load for load in slices if load.cpu > 0]
    subsets = itertools.chain.from_iterable(itertools.combinations(useful, n) for n in range(len(useful) + 1))
    enough = [subset for subset in subsets if sum(units(load.cpu) for load in subset) >= need]
    found = select_slices(slices, need / UNITS)
    if not enough:
        assert found == tuple(useful)
        return
    best = min(
        enough,
        key=lambda subset: (
            sum(load.memory_bytes for load in subset),
            sum(units(load.cpu) for load in subset),
            len(subset),
            [load.id for load in subset],
        ),
    )
    assert found == best
