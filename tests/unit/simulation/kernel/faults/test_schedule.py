"""Every kind of fault strikes, ends, and leaves the times of the others alone."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from random import Random

import msgspec
import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.distributions import MINUTE, S
from lavant.simulation.kernel.faults.kinds import KINDS, Strike
from lavant.simulation.kernel.faults.schedule import schedule_faults
from lavant.simulation.kernel.faults.swarm import FaultOptions
from lavant.simulation.kernel.host import Host
from lavant.simulation.kernel.machine import Effect, Stimulus
from lavant.simulation.kernel.trace import Trace
from lavant.simulation.kernel.world import World

NAMES = [name for name, _ in KINDS]
NONE = msgspec.structs.replace(FaultOptions(swarm=False), **{f"{name}_per_min": 0.0 for name in NAMES})


class Silent:
    def handle(self, stimulus: Stimulus, now_ms: int, /) -> list[Effect]:
        return []

    def wakeup_ms(self) -> int | None:
        return None


def boot(host: Host) -> Silent:
    if not host.disk.names():
        host.disk.replace("file", [bytes(1000)])
    return Silent()


def new_world(seed: int = 1, trace: Trace | None = None) -> tuple[World, list[Host]]:
    world = World(seed, work_us=20 * MINUTE, trace=trace)
    return world, [world.host(name, boot) for name in ("a", "b", "c")]


def rates(**per_min: float) -> FaultOptions:
    return msgspec.structs.replace(NONE, **{f"{name}_per_min": rate for name, rate in per_min.items()})


def fault_lines(wanted: FaultOptions, seed: int = 1) -> list[str]:
    """The faults of a run, in the trace's words."""
    file = StringIO()
    trace = Trace(file)
    world, hosts = new_world(seed, trace)
    schedule_faults(world, wanted, hosts)
    assert world.run() is None
    trace.digest()
    return [line for line in file.getvalue().splitlines() if " fault " in line]


def strike(kind: str, seed: int = 1) -> tuple[World, list[Host], Callable[[], object] | None]:
    strikes: dict[str, Strike] = dict(KINDS)
    world, hosts = new_world(seed)
    world.stage.calendar.run(until_us=1 * S, events_max=1000)
    return world, hosts, strikes[kind](world, hosts, Random(seed)).end


# ── the schedule ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_there_is_a_rate_for_each_kind_and_a_kind_for_each_rate() -> None:
    fields = [name.removesuffix("_per_min") for name in FaultOptions.__struct_fields__ if name.endswith("_per_min")]
    assert sorted(fields) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_strikes_as_often_as_its_rate_says(name: str) -> None:
    world, hosts = new_world()
    schedule_faults(world, rates(**{name: 10.0}), hosts)
    assert world.run() is None
    assert 140 < world.stage.figures[f"fault {name.replace('_', ' ')}"] < 260


def test_without_rates_nothing_happens() -> None:
    assert fault_lines(NONE) == []


def test_a_kind_that_is_switched_off_leaves_the_others_at_their_times() -> None:
    def pauses(lines: list[str]) -> list[str]:
        return [line for line in lines if "fault pauses" in line]

    both = fault_lines(rates(pauses=3.0, partitions=3.0))
    assert pauses(both) == fault_lines(rates(pauses=3.0))
    assert len(pauses(both)) < len(both)


def test_faults_that_last_end_and_all_have_ended_at_the_calm() -> None:
    lines = fault_lines(rates(partitions=20.0, storms=20.0))
    ends = [line for line in lines if line.endswith("ends")]
    assert len(ends) * 2 == len(lines)
    assert all(float(line.split()[0]) <= 20 * 60 for line in lines)


def test_after_the_calm_links_are_whole() -> None:
    for seed in range(20):
        world, hosts = new_world(seed)
        schedule_faults(world, rates(partitions=30.0, storms=30.0), hosts)
        assert world.run() is None
        assert all(world.network.link(a.name, b.name).cuts == 0 for a in hosts for b in hosts)
        assert (world.network.loss_extra, world.network.slowness) == (0.0, 1)


def test_swarms_differ_from_seed_to_seed() -> None:
    seeds = range(20)
    kinds = [frozenset(line.split(" ")[2] for line in fault_lines(FaultOptions(), seed)) for seed in seeds]
    assert len(set(kinds)) > 10
    assert frozenset.union(*kinds) >= {"power", "kills:", "pauses:", "partitions:", "storms:", "slow", "full"}


def test_faults_without_hosts_are_refused() -> None:
    with pytest.raises(InvalidValue, match="faults need a host to strike"):
        schedule_faults(new_world()[0], NONE, [])


# ── the kinds ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "figure"), [("power_losses", "power losses"), ("kills", "kills")])
def test_crashes_come_at_once_or_in_the_midst_of_an_operation(kind: str, figure: str) -> None:
    at_once = later = 0
    for seed in range(40):
        world, hosts, end = strike(kind, seed)
        assert end is None
        at_once += world.stage.figures[figure]
        later += any(host.disk._strikes for host in hosts)
    assert at_once > 10
    assert later > 10


def test_a_partition_cuts_some_links_and_heals_them() -> None:
    cuts = set()
    for seed in range(40):
        world, hosts, end = strike("partitions", seed)
        pairs = [(a.name, b.name) for a in hosts for b in hosts if a is not b]
        cuts.add(tuple(pair for pair in pairs if world.network.link(*pair).cuts))
        assert end is not None
        end()
        assert all(world.network.link(*pair).cuts == 0 for pair in pairs)
    assert {len(cut) for cut in cuts} == {1, 4}


def test_a_partition_of_one_host_strikes_nothing() -> None:
    world = World(1, work_us=1 * S)
    host = world.host("alone", boot)
    assert dict(KINDS)["partitions"](world, [host], Random(1)).end is None


def test_a_slow_disk_is_slow_until_the_end() -> None:
    _, hosts, end = strike("slow_disks")
    assert max(host.disk.slowness for host in hosts) >= 10
    assert end is not None
    end()
    assert {host.disk.slowness for host in hosts} == {1}


def test_a_full_disk_has_room_again_at_the_end() -> None:
    _, hosts, end = strike("full_disks")
    full = [host for host in hosts if host.disk.capacity_bytes == 1000]
    assert len(full) == 1
    assert end is not None
    end()
    assert full[0].disk.capacity_bytes > 1000


def test_a_disk_with_an_error_is_repaired_at_the_end() -> None:
    _, hosts, end = strike("disk_errors")
    assert [host.disk.error for host in hosts].count("input/output error") == 1
    assert end is not None
    end()
    assert all(host.disk.error is None for host in hosts)


def test_a_flipped_bit_is_one_bit() -> None:
    _, hosts, _ = strike("flipped_bits")
    bits = [bin(int.from_bytes(host.disk.content("file"), "big")).count("1") for host in hosts]
    assert sorted(bits) == [0, 0, 1]


def test_clocks_jump_both_ways_and_drift() -> None:
    jumps = {host.clock.jumped_us > 0 for seed in range(20) for host in strike("clock_jumps", seed)[1]}
    assert jumps == {True, False}
    _, hosts, end = strike("clock_drifts")
    assert sum(host.clock.drift_ppm != 0 for host in hosts) == 1
    assert end is not None
    end()
    assert all(host.clock.drift_ppm == 0 for host in hosts)
