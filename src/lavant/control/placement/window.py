"""The sliding window of probes, with means and extremes.

A rule holds "for at least 30 seconds" (e-StreamHub, Section V) if each sample of the last `window_ms` violates it and
samples reach back that far without a gap, which is time that no sample covers. Samples are kept in slots of a
fraction of the window, only the latest of each slot, so a host that probes too often costs no memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.values import Probes, SliceProbe
from lavant.control.placement.view import UNKNOWN, Range, SliceLoad, TotalLoad
from lavant.core.ids import HostId, SliceId

SLOTS = 120
"""The most samples of one window."""
HISTORY_HALF_LIVES = 5
"""Older samples have lost all but 3 % of their weight in the trend."""


class LoadSample(msgspec.Struct, frozen=True):
    """Probes, ordered by id, and when they came."""

    time_ms: int
    probes: Probes


class LoadWindow:
    """Samples of the last `window_ms`, and the total load for somewhat longer."""

    def __init__(self, config: PlacementConfig) -> None:
        self._config = config
        self._slot_ms = max(1, config.rules.window_ms // SLOTS)
        self.samples: list[LoadSample] = []
        self.history: list[TotalLoad] = []

    def add(self, probes: Probes, now_ms: int) -> None:
        measured_since_ms = now_ms - probes.span_ms
        if self.samples and measured_since_ms - self.samples[-1].time_ms > self._config.probe_gap_ms_max:
            self.samples.clear()
            self.history.clear()
        if self.samples and now_ms // self._slot_ms == self.samples[-1].time_ms // self._slot_ms:
            self.samples.pop()
            self.history.pop()
        total = math.fsum(probe.cpu for host in probes.hosts for probe in host.slices)
        self.samples.append(LoadSample(now_ms, probes.in_order()))
        self.history.append(TotalLoad(now_ms, total / self._config.capacity.cpu))
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        window_start_ms = now_ms - self._config.rules.window_ms
        # One sample from before the window stays: it shows that the window is complete.
        while len(self.samples) > 1 and self.samples[1].time_ms <= window_start_ms:
            del self.samples[0]
        history_start_ms = now_ms - HISTORY_HALF_LIVES * self._config.forecast.half_life_ms
        self.history = [total for total in self.history if total.time_ms >= history_start_ms]

    def is_current(self, now_ms: int) -> bool:
        return bool(self.samples) and now_ms - self.samples[-1].time_ms <= self._config.probe_gap_ms_max

    def is_whole(self, now_ms: int) -> bool:
        return self.is_current(now_ms) and self.samples[0].time_ms <= now_ms - self._config.rules.window_ms

    def slice_loads(self) -> tuple[SliceLoad, ...]:
        """Each present slice, on its present host."""
        cpu: dict[SliceId, list[float]] = {}
        network: dict[SliceId, list[float]] = {}
        for sample in self.samples:
            for host in sample.probes.hosts:
                for probe in host.slices:
                    cpu.setdefault(probe.id, []).append(probe.cpu / self._config.capacity.cpu)
                    network.setdefault(probe.id, []).append(probe.network_bytes_per_s)
        loads = [
            _load(probe, host.id, cpu[probe.id], network[probe.id])
            for host in self.samples[-1].probes.hosts
            for probe in host.slices
        ]
        return tuple(sorted(loads, key=lambda load: load.id))

    def average_range(self, now_ms: int) -> Range:
        """Extremes of the average CPU of all hosts."""
        if not self.is_whole(now_ms):
            return UNKNOWN
        return _range(math.fsum(cpu.values()) / len(cpu) if cpu else 0.0 for cpu in self._measured(now_ms))

    def host_ranges(self, now_ms: int) -> dict[HostId, Range]:
        """Extremes of each host that was present in the whole window."""
        if not self.is_whole(now_ms):
            return {}
        measured = self._measured(now_ms)
        always = [host for host in measured[0] if all(host in cpu for cpu in measured)]
        return {host: _range(cpu[host] for cpu in measured) for host in always}

    def _measured(self, now_ms: int) -> list[dict[HostId, float]]:
        """The CPU of each host, for each sample in the window, including its start."""
        start_ms = now_ms - self._config.rules.window_ms
        inside = [sample for sample in self.samples if sample.time_ms >= start_ms]
        return [
            {
                host.id: math.fsum(probe.cpu for probe in host.slices) / self._config.capacity.cpu
                for host in sample.probes.hosts
            }
            for sample in inside
        ]


def _load(probe: SliceProbe, host: HostId, cpu: list[float], network: list[float]) -> SliceLoad:
    return SliceLoad(
        id=probe.id,
        operator=probe.operator,
        host=host,
        cpu=math.fsum(cpu) / len(cpu),
        memory_bytes=probe.memory_bytes,
        network_bytes_per_s=math.fsum(network) / len(network),
    )


def _range(values: Iterable[float]) -> Range:
    listed = list(values)
    return Range(min(listed), max(listed))
