"""A policy's view: the loads over the window under the present placement, and what may be done.

CPU is a share of one host here, whatever unit the probes have. A slice's CPU and network are means over the window, its
memory is the latest. A host's CPU is the sum of its present slices, so it is right just after a move too; its range is
what was measured on it in the window, and decides whether a rule was violated throughout.
"""

from __future__ import annotations

import math
from functools import cached_property

import msgspec

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.values import Placement
from lavant.core.ids import HostId, SliceId


class SliceLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One slice and the resources it uses."""

    id: SliceId
    operator: str
    host: HostId
    cpu: float
    memory_bytes: int
    network_bytes_per_s: float


class Range(msgspec.Struct, frozen=True):
    """The lowest and highest values measured in the window."""

    lowest: float
    highest: float


UNKNOWN = Range(-math.inf, math.inf)
"""Not measured during the whole window: neither always above nor always below anything."""


class TotalLoad(msgspec.Struct, frozen=True):
    """The CPU of all slices at one time, in hosts."""

    time_ms: int
    cpu: float


class LoadView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The cluster at `now_ms`; hosts and slices by id."""

    now_ms: int
    config: PlacementConfig
    hosts: tuple[HostId, ...]
    slices: tuple[SliceLoad, ...]
    average_range: Range = UNKNOWN
    host_ranges: dict[HostId, Range] = {}
    history: tuple[TotalLoad, ...] = ()
    grown_ms: int | None = None
    """When hosts were last added."""
    hosts_named: int = 0
    """The number in the last name given to a host."""

    @cached_property
    def on_host(self) -> dict[HostId, tuple[SliceLoad, ...]]:
        slices: dict[HostId, list[SliceLoad]] = {host: [] for host in self.hosts}
        for load in self.slices:
            slices[load.host].append(load)
        return {host: tuple(loads) for host, loads in slices.items()}

    @cached_property
    def host_cpu(self) -> dict[HostId, float]:
        return {host: math.fsum(load.cpu for load in loads) for host, loads in self.on_host.items()}

    @cached_property
    def total_cpu(self) -> float:
        return math.fsum(load.cpu for load in self.slices)

    @property
    def average_cpu(self) -> float:
        return self.total_cpu / len(self.hosts)

    @cached_property
    def placement(self) -> Placement:
        return Placement.of(self.hosts, {load.id: load.host for load in self.slices})

    @property
    def hosts_addable(self) -> int:
        return max(0, self.config.hosts_max - len(self.hosts))

    @property
    def hosts_releasable(self) -> int:
        return max(0, len(self.hosts) - self.config.hosts_min)

    def new_host(self, number: int) -> HostId:
        """The name of the `number`th host to add, from 0 on; existing names are skipped."""
        candidate = self.hosts_named
        while True:
            candidate += 1
            name = HostId(f"{self.config.host_prefix}-{candidate:04d}")
            if name not in self.hosts:
                if number == 0:
                    return name
                number -= 1
