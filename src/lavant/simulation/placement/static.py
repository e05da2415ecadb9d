"""Clusters that do not scale (e-StreamHub, Sections VI-C and VI-D): throughput, delays, and moves on command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from lavant.control.placement.values import Move, PlacementPlan
from lavant.core.decisions import Decision
from lavant.core.ids import HostId, SliceId
from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.placement.cluster import ACCESS, EXIT, MATCH, ClusterConfig, Costs
from lavant.simulation.placement.flow import Doubles, Flow
from lavant.simulation.placement.migrations import MigrationDriver, MigrationPause

EVENTS_MAX = 1_000_000
LARGE_SLICES = ClusterConfig(
    access=msgspec.structs.replace(ACCESS, slices=4),
    match=msgspec.structs.replace(MATCH, slices=8),
    exit=msgspec.structs.replace(EXIT, slices=4),
    peak_per_s=110.0,
    hosts_at_peak=8.0,
)
"""Section VI-D: 4, 8 and 4 slices; 100 publications a second are slightly less than half of what 8 hosts can do."""


class HostMove(NamedTuple):
    """A slice moves to another host of its operator at this time."""

    time_s: float
    slice: str


def placed(config: ClusterConfig, hosts: int) -> dict[SliceId, HostId]:
    """A quarter of the hosts for AP, half for M, a quarter for EP (Section VI-C); with two, AP and EP share one."""
    quarter = max(1, hosts // 4)
    groups = {"AP": range(quarter), "EP": range(hosts - quarter, hosts), "M": range(quarter, hosts - quarter)}
    if hosts == 2:
        groups = {"AP": range(1), "EP": range(1), "M": range(1, 2)}
    placement: dict[SliceId, HostId] = {}
    for slice in config.layout.slices:
        operator, number = slice.split(":")
        group = groups[operator]
        placement[slice] = HostId(f"host-{group[int(number) % len(group)]:02d}")
    return placement


class StaticRun(NamedTuple):
    """Arrivals and delays in seconds, and the pauses of slices that moved."""

    arrival_s: Doubles
    delay_s: Doubles
    pauses: list[MigrationPause]

    @property
    def throughput_per_s(self) -> float:
        """Publications done per second."""
        return len(self.arrival_s) / float((self.arrival_s + self.delay_s).max())


def run_static(
    config: ClusterConfig, hosts: int, rate_per_s: float, length_s: float, *, seed: int, moves: Sequence[HostMove] = ()
) -> StaticRun:
    """Poisson arrivals at a constant rate on a fixed number of hosts."""
    random = np.random.default_rng([seed, 5])
    arrival_s = np.sort(random.random(random.poisson(rate_per_s * length_s)) * length_s)
    placement = placed(config, hosts)
    names = sorted(set(placement.values()))
    flow = Flow(
        arrival_s,
        slices=(config.access.slices, config.match.slices, config.exit.slices),
        cost_s=Costs(config, seed).next_s(),
        hosts_max=len(names),
        cores=config.cores,
        hop_s=config.hop_ms / 1000.0,
        seed=seed,
    )
    calendar = Calendar()
    driver = MigrationDriver(config, flow, calendar, placement)
    for move in moves:
        until_us = round(1e6 * move.time_s)
        calendar.run(until_us=until_us, events_max=EVENTS_MAX)
        calendar.now_us = until_us
        flow.advance(move.time_s)
        driver.start(_plan(driver, SliceId(move.slice)))
    calendar.run(until_us=round(1e6 * (length_s + 600.0)), events_max=EVENTS_MAX)
    flow.advance(np.inf)
    return StaticRun(arrival_s, flow.delay_s, driver.pauses)


def _plan(driver: MigrationDriver, slice: SliceId) -> PlacementPlan:
    """Move the slice to the next host."""
    hosts = [host for host, _ in driver.placement.by_host]
    source = driver.placement.host_of[slice]
    destination = hosts[(hosts.index(source) + 1) % len(hosts)]
    decision = Decision(loop="placement", action=f"move {slice}", reason="the experiment asks for it")
    return PlacementPlan(decision=decision, moves=(Move(slice=slice, source=source, destination=destination),))
