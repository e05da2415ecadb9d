"""The allocation loop in virtual time: monitor, decide, apply, while a network serves its load.

Every `interval_s` the allocator sees the monitor's counts and sets the consumers of each topic. Added ones take
`start_s` to start and are paid for from the decision on; removed ones finish their task. A service does the same with
the same allocator; here a day takes a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from lavant.control.allocation import Allocator, Consumers, ObservedLoad
from lavant.core.decisions import Decision
from lavant.core.errors import InvalidValue
from lavant.models.layout import Floats, Numbers
from lavant.models.network import Network
from lavant.simulation.queueing.curves import Curve
from lavant.simulation.queueing.simulation import JobFinished, NetworkSimulation

INTERVALS_MAX = 1_000_000


class LoopConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the loop."""

    interval_s: float = 15.0
    window_s: float = 120.0
    """Of the monitor: the window over which arrivals are counted."""
    start_s: float = 10.0
    """Of a consumer."""

    def __post_init__(self) -> None:
        if not (self.interval_s > 0 and self.window_s >= self.interval_s and self.start_s >= 0):
            raise InvalidValue(f"a loop needs 0 < interval_s ≤ window_s and start_s ≥ 0, got {self}")


class ControlledRun(msgspec.Struct, frozen=True, kw_only=True):
    """Results, from the first arrival until the last job was done."""

    finished: JobFinished
    times_s: list[float]
    consumers: list[Consumers]
    """Paid for, from each of the times on."""
    decisions: list[Decision]
    """Those that changed something."""
    consumer_s: float
    """Paid for, up to the end of the load."""

    @property
    def response_s(self) -> float:
        return float(self.finished.response_s.mean())

    def percentile_s(self, fraction: float) -> float:
        return float(np.quantile(self.finished.response_s, fraction))

    def jobs_above(self, response_s: float) -> float:
        """The share of jobs that took longer."""
        return float((self.finished.response_s > response_s).mean())

    def time_above(self, response_s: float, *, window_s: float = 60.0) -> float:
        """The share of windows with arrivals in which the mean response of those jobs is longer."""
        window = (self.finished.arrival_s // window_s).astype(np.int64)
        counts = np.bincount(window)
        sums = np.bincount(window, weights=self.finished.response_s)
        means = sums[counts > 0] / counts[counts > 0]
        return float((means > response_s).mean())


def run_controlled(
    network: Network,
    curve: Curve,
    allocator: Allocator,
    *,
    start: Sequence[int],
    length_s: float,
    seed: int,
    config: LoopConfig | None = None,
) -> ControlledRun:
    """Serve the curve's load up to `length_s` under the allocator, then the rest with the last allocation."""
    config = LoopConfig() if config is None else config
    if not 0 < length_s / config.interval_s <= INTERVALS_MAX:
        raise InvalidValue(f"a run has up to {INTERVALS_MAX} intervals, got {length_s / config.interval_s:g}")
    run = NetworkSimulation(network, start, seed=seed, curve=_ending(curve, length_s), record=True)
    loop = _Loop(run, config, tuple(start))
    for number in range(1, int(np.ceil(length_s / config.interval_s)) + 1):
        loop.go_to(min(number * config.interval_s, length_s))
        loop.decide(allocator)
    paid_s = loop.paid_s
    while run.jobs:
        loop.go_to(run.now_s + config.interval_s)
    return ControlledRun(
        finished=run.take_finished(),
        times_s=loop.times_s,
        consumers=loop.history,
        decisions=loop.decisions,
        consumer_s=paid_s,
    )


class _Loop:
    """Monitor and actuator around a simulation."""

    def __init__(self, run: NetworkSimulation, config: LoopConfig, start: Consumers) -> None:
        self._run, self._config = run, config
        self._wanted = start
        self._starting: list[tuple[float, Consumers]] = []
        self._counts: deque[tuple[float, Numbers]] = deque([(0.0, run.counters().arrived)])
        self.times_s, self.history = [0.0], [start]
        self.decisions: list[Decision] = []
        self.paid_s = 0.0

    def go_to(self, time_s: float) -> None:
        """Advance to a time; consumers that start meanwhile begin to serve."""
        self.paid_s += sum(self._wanted) * (time_s - self._run.now_s)
        while self._starting and self._starting[0][0] <= time_s:
            ready_s, consumers = self._starting.pop(0)
            self._run.advance(max(ready_s, self._run.now_s))
            self._run.set_consumers(consumers)
        self._run.advance(time_s)

    def decide(self, allocator: Allocator) -> None:
        now_s = self._run.now_s
        plan = allocator.decide(self._observed(), round(now_s * 1000))
        if plan.consumers == self._wanted:
            return
        # Removals are immediate, additions come later. This decision overrides starts in progress.
        self._run.set_consumers(tuple(map(min, self._run.consumers, plan.consumers)))
        self._starting = [(when_s, tuple(map(min, m, plan.consumers))) for when_s, m in self._starting]
        self._starting.append((now_s + self._config.start_s, plan.consumers))
        self._wanted = plan.consumers
        self.times_s.append(now_s)
        self.history.append(plan.consumers)
        self.decisions.append(plan.decision)

    def _observed(self) -> ObservedLoad:
        counts, now_s = self._counts, self._run.now_s
        counts.append((now_s, self._run.counters().arrived))
        while len(counts) > 2 and counts[1][0] <= now_s - self._config.window_s:
            counts.popleft()
        since_s, before = counts[0]
        rates = (counts[-1][1] - before) / (now_s - since_s)
        return ObservedLoad(
            consumers=self._wanted,
            arrival_rates_per_s=tuple(rates.tolist()),
            requests=tuple(map(float, self._run.requests)),
            window_s=now_s - since_s,
        )


def _ending(curve: Curve, length_s: float) -> Curve:
    """The curve, with no arrivals from `length_s` on."""
    kept = curve.ends_s < length_s
    ends: Floats = np.concatenate([curve.ends_s[kept], [length_s, np.inf]])
    rates = np.vstack([curve.rates_per_s[kept], curve.at(np.nextafter(length_s, 0.0)), np.zeros_like(curve.at(0.0))])
    return Curve(ends_s=ends, rates_per_s=rates)
