"""Hosts as bins: a working copy of a placement in which slices can be moved.

e-StreamHub, Section V, second step: hosts are bins, a slice is an item weighted by its CPU; memory and network are
constraints of the same test. The paper compares strictly ("smaller than the remaining capacity"); here a slice that
fills a host exactly fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from lavant.control.placement.config import HostCapacity
from lavant.control.placement.view import LoadView, SliceLoad
from lavant.core.ids import HostId, SliceId

ROUNDING = 1e-9
"""Sums of shares that are mathematically equal differ by less."""


class Bins:
    """Slices on hosts; `cpu_factor` scales their CPU, to pack for an expected load."""

    def __init__(self, view: LoadView, *, cpu_factor: float = 1.0) -> None:
        self._capacity: HostCapacity = view.config.capacity
        self._factor = cpu_factor
        self._on: dict[HostId, list[SliceLoad]] = {host: list(loads) for host, loads in view.on_host.items()}
        self._cpu: dict[HostId, float] = {}
        self.host_of: dict[SliceId, HostId] = {load.id: load.host for load in view.slices}

    @property
    def hosts(self) -> list[HostId]:
        return list(self._on)

    def cpu_of(self, load: SliceLoad) -> float:
        return load.cpu * self._factor

    def cpu(self, host: HostId) -> float:
        if host not in self._cpu:
            self._cpu[host] = math.fsum(map(self.cpu_of, self._on[host]))
        return self._cpu[host]

    def slices(self, host: HostId) -> Sequence[SliceLoad]:
        return self._on[host]

    def open(self, host: HostId) -> None:
        self._on[host] = []

    def take(self, load: SliceLoad) -> None:
        """Take a slice off its host, before it is put on another."""
        host = self.host_of.pop(load.id)
        self._on[host].remove(load)
        self._cpu.pop(host, None)

    def put(self, load: SliceLoad, host: HostId) -> None:
        self._on[host].append(load)
        self._cpu.pop(host, None)
        self.host_of[load.id] = host

    def has_room(self, load: SliceLoad, host: HostId, *, without: SliceLoad | None = None) -> bool:
        """Whether memory and network allow it, if slice `without` were gone."""
        others = [other for other in self._on[host] if other is not without]
        memory = sum(other.memory_bytes for other in others) + load.memory_bytes
        network = math.fsum(other.network_bytes_per_s for other in others) + load.network_bytes_per_s
        return memory <= self._capacity.memory_bytes and network <= self._capacity.network_bytes_per_s

    def has_room_alone(self, load: SliceLoad) -> bool:
        """Whether an empty host could hold it."""
        capacity = self._capacity
        return load.memory_bytes <= capacity.memory_bytes and load.network_bytes_per_s <= capacity.network_bytes_per_s

    def fits(self, load: SliceLoad, host: HostId, cpu_max: float) -> bool:
        return self.cpu(host) + self.cpu_of(load) <= cpu_max + ROUNDING and self.has_room(load, host)

    def first_fit(self, load: SliceLoad, hosts: Iterable[HostId], cpu_max: float) -> HostId | None:
        return next((host for host in hosts if self.fits(load, host, cpu_max)), None)

    def fullest(self, load: SliceLoad, hosts: Iterable[HostId], cpu_max: float) -> HostId | None:
        fitting = [host for host in hosts if self.fits(load, host, cpu_max)]
        return min(fitting, key=lambda host: (-self.cpu(host), host), default=None)

    def least_loaded(self, load: SliceLoad, hosts: Iterable[HostId], cpu_max: float) -> HostId | None:
        fitting = [host for host in hosts if self.fits(load, host, cpu_max)]
        return min(fitting, key=lambda host: (self.cpu(host), host), default=None)


def by_falling_cpu(slices: Iterable[SliceLoad]) -> list[SliceLoad]:
    return sorted(slices, key=lambda load: (-load.cpu, load.id))
