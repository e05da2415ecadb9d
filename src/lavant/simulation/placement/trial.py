"""A trial: one policy against one load curve, and the figures by which policies are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.control.placement.config import PlacementConfig
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.values import HostProbe, Probes, SliceProbe
from lavant.core.decisions import Decision
from lavant.core.ids import HostId
from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.placement.cluster import ClusterConfig, Costs
from lavant.simulation.placement.flow import Flow
from lavant.simulation.placement.load_curves import Curve
from lavant.simulation.placement.migrations import MigrationDriver, MigrationPause

EVENTS_MAX = 1_000_000
"""Per probe interval: more are a loop."""
Doubles = NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """One probe interval. Loads are those of single hosts with slices, as shares of a host."""

    time_s: float
    """Its end."""
    rate_per_s: float
    hosts: int
    """Paid for."""
    load_low: float
    load_mean: float
    load_high: float
    delay_ms: float
    """Mean over the publications that arrived in it."""
    delay_ms_max: float


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Between a publication's arrival and its notification."""

    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, delay_s: Doubles) -> Delays:
        if not len(delay_s):
            return cls(p50_ms=0.0, p99_ms=0.0, max_ms=0.0)
        p50, p99, highest = 1000.0 * np.quantile(delay_s, (0.5, 0.99, 1.0))
        return cls(p50_ms=float(p50), p99_ms=float(p99), max_ms=float(highest))


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The results. Underload does not count for a cluster with its least number of hosts."""

    policy: str
    intervals: list[Interval]
    host_s_above: float
    host_s_below: float
    """Host-seconds with a load outside the local rule's band."""
    moves: int
    state_bytes: int
    pause_ms: float
    """Mean pause of a slice that moves."""
    host_hours: float
    publications: int
    delays: Delays
    delays_moving: Delays
    """Of publications in flight while some slice did not run."""
    decisions: list[Decision]

    @property
    def hosts(self) -> list[int]:
        return [interval.hosts for interval in self.intervals]

    @property
    def host_s_outside(self) -> float:
        return self.host_s_above + self.host_s_below

    @property
    def load_max(self) -> float:
        return max(interval.load_high for interval in self.intervals)

    @property
    def load_min(self) -> float:
        """The lowest load while there was more than one host."""
        return min((interval.load_low for interval in self.intervals if interval.hosts > 1), default=0.0)


def run_trial(
    curve: Curve,
    config: PlacementConfig,
    *,
    seed: int,
    cluster: ClusterConfig | None = None,
    hosts_at_start: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Trial:
    """Feed the curve to a cluster under the configured policy; `progress` is called for each second passed.

    >>> from lavant.simulation.placement.load_curves import ramp
    >>> trial = run_trial(ramp(rise_s=300, hold_s=60), PlacementConfig(policy="threshold"), seed=1)
    >>> trial.hosts[0], max(trial.hosts) > 8, trial.hosts[-1] < 5
    (1, True, True)
    """
    cluster = ClusterConfig() if cluster is None else cluster
    return _RunningTrial(curve, config, cluster, seed, hosts_at_start).run(progress)


class _Loads(NamedTuple):
    probes: Probes
    of_hosts: list[float]


class _RunningTrial:
    """A running trial."""

    def __init__(
        self, curve: Curve, config: PlacementConfig, cluster: ClusterConfig, seed: int, hosts_at_start: int
    ) -> None:
        self._curve = curve
        self._config = config
        self._cluster = cluster
        self._arrival_s = _arrivals(curve, seed)
        self._costs = Costs(cluster, seed)
        self._flow = Flow(
            self._arrival_s,
            slices=(cluster.access.slices, cluster.match.slices, cluster.exit.slices),
            cost_s=self._costs.next_s(),
            hosts_max=config.hosts_max + hosts_at_start,
            cores=cluster.cores,
            hop_s=cluster.hop_ms / 1000.0,
            seed=seed,
        )
        self._calendar = Calendar()
        first = [HostId(f"{config.host_prefix}-{number:04d}") for number in range(1, hosts_at_start + 1)]
        slices = cluster.layout.slices
        placement = {slice: first[number % hosts_at_start] for number, slice in enumerate(slices)}
        self._column = {slice: number for number, slice in enumerate(slices)}
        self._conductor = MigrationDriver(cluster, self._flow, self._calendar, placement)
        self._enforcer = Enforcer(config)
        self._intervals: list[Interval] = []
        self._above = self._below = 0
        self._decisions: list[Decision] = []

    def run(self, progress: Callable[[int], None] | None) -> Trial:
        probe_ms = self._cluster.probe_ms
        for now_ms in range(probe_ms, 1000 * len(self._curve) + 1, probe_ms):
            self._calendar.run(until_us=1000 * now_ms, events_max=EVENTS_MAX)
            self._calendar.now_us = 1000 * now_ms
            self._flow.advance(now_ms / 1000.0)
            self._probe(now_ms)
            if progress is not None:
                progress(probe_ms // 1000)
        self._calendar.run(until_us=self._calendar.now_us + 600_000_000, events_max=EVENTS_MAX)
        self._flow.advance(np.inf)
        return self._result()

    def _probe(self, now_ms: int) -> None:
        """Measure, decide, and start the plan."""
        loads = self._loads(now_ms)
        self._enforcer.observe(loads.probes, now_ms)
        plan = self._enforcer.decide(now_ms) if self._conductor.is_idle else None
        self._record(loads.of_hosts, now_ms)
        if plan is not None:
            self._decisions.append(plan.decision)
            if plan.changes:
                self._conductor.start(plan)
        self._flow.cost_s[:] = self._costs.next_s()

    def _loads(self, now_ms: int) -> _Loads:
        cluster, placement = self._cluster, self._conductor.placement
        first_s = (now_ms - cluster.probe_ms) / 1000.0
        cpu = cluster.idle_cpu + self._flow.cpu(first_s, now_ms / 1000.0) / cluster.cores
        rate = self._rate(now_ms)
        probes = []
        for host, slices in placement.by_host:
            columns = [self._column[slice] for slice in slices]
            scale = min(1.0, 1.0 / max(1e-12, float(cpu[columns].sum())))  # a slice that moved here used CPU elsewhere
            probes.append(
                HostProbe(
                    id=host,
                    slices=tuple(
                        SliceProbe(
                            id=slice,
                            operator=self._costs.operators[column].name,
                            cpu=float(cpu[column] * scale),
                            memory_bytes=self._costs.operators[column].state_bytes,
                            network_bytes_per_s=rate * cluster.network_bytes_per_publication,
                        )
                        for slice, column in zip(slices, columns, strict=True)
                    ),
                )
            )
        of_hosts = [sum(probe.cpu for probe in host.slices) for host in probes if host.slices]
        return _Loads(Probes(hosts=tuple(probes)), of_hosts)

    def _rate(self, now_ms: int) -> float:
        probe_s = self._cluster.probe_ms // 1000
        return float(self._curve[now_ms // 1000 - probe_s : now_ms // 1000].mean())

    def _record(self, loads: list[float], now_ms: int) -> None:
        band = self._config.rules.host
        self._above += sum(load > band.high for load in loads)
        if self._conductor.hosts_paid > self._config.hosts_min:
            self._below += sum(load < band.low for load in loads)
        self._intervals.append(
            Interval(
                time_s=now_ms / 1000.0,
                rate_per_s=self._rate(now_ms),
                hosts=self._conductor.hosts_paid,
                load_low=min(loads),
                load_mean=sum(loads) / len(loads),
                load_high=max(loads),
                delay_ms=0.0,
                delay_ms_max=0.0,
            )
        )

    def _result(self) -> Trial:
        interval_s = self._cluster.probe_ms / 1000.0
        delay_s, conductor = self._flow.delay_s, self._conductor
        pauses = conductor.pauses
        return Trial(
            policy=self._config.policy,
            intervals=_with_delays(self._intervals, self._arrival_s, delay_s, interval_s),
            host_s_above=self._above * interval_s,
            host_s_below=self._below * interval_s,
            moves=sum(move.is_moved for move in conductor.moves),
            state_bytes=conductor.state_bytes,
            pause_ms=1000.0 * sum(pause.end_s - pause.start_s for pause in pauses) / max(1, len(pauses)),
            host_hours=sum(interval.hosts for interval in self._intervals) * interval_s / 3600.0,
            publications=len(delay_s),
            delays=Delays.of(delay_s),
            delays_moving=Delays.of(delay_s[_overlapping(self._arrival_s, delay_s, pauses)]),
            decisions=self._decisions,
        )


def _arrivals(curve: Curve, seed: int) -> Doubles:
    """A Poisson process with the rate of the curve."""
    random = np.random.default_rng([seed, 4])
    counts = random.poisson(curve)
    second = np.repeat(np.arange(len(curve), dtype=np.float64), counts)
    return np.sort(second + random.random(len(second)))


def _with_delays(intervals: list[Interval], arrival_s: Doubles, delay_s: Doubles, length_s: float) -> list[Interval]:
    edges = np.searchsorted(arrival_s, [interval.time_s for interval in intervals])
    starts = np.searchsorted(arrival_s, [interval.time_s - length_s for interval in intervals])
    return [
        msgspec.structs.replace(
            interval,
            delay_ms=1000.0 * float(delay_s[start:end].mean()),
            delay_ms_max=1000.0 * float(delay_s[start:end].max()),
        )
        if start < end
        else interval
        for interval, start, end in zip(intervals, starts, edges, strict=True)
    ]


def _overlapping(arrival_s: Doubles, delay_s: Doubles, pauses: list[MigrationPause]) -> NDArray[np.bool_]:
    """Which publications were in flight during one of the pauses."""
    found = np.zeros(len(arrival_s), np.bool_)
    longest_s = float(delay_s.max(initial=0.0))
    for pause in pauses:
        first, last = np.searchsorted(arrival_s, (pause.start_s - longest_s, pause.end_s))
        found[first:last] |= arrival_s[first:last] + delay_s[first:last] >= pause.start_s
    return found
