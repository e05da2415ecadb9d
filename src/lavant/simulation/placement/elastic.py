"""The loads of e-StreamHub's evaluation of elastic scaling (Section VI-E), and policies under them.

Figure 8: a ramp 0 → 350 → 0 publications a second. Figure 9: a trading day, twenty times as fast (an hour in three
minutes, as the text says; "10 times", which it says as well, would be six), with a peak of 190 a second. The paper
replays Frankfurt's trades of a day in 2011; here it is any recorded day, or a synthetic one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lavant.control.placement.config import PlacementConfig
from lavant.core.errors import InvalidValue
from lavant.simulation.placement.load_curves import Curve, ramp, replay, trading_day
from lavant.simulation.placement.trial import Trial, run_trial

POLICIES = ("threshold", "forecast", "static")
"""The paper's, ours, and a fixed number of hosts."""


class LoadScenario(NamedTuple):
    """The offered load, and the hosts that a static cluster needs for its peak at the target of 50 %."""

    name: str
    curve: Curve
    hosts_static: int


class LoadTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial under its load."""

    load: str
    trial: Trial

    @property
    def envelope(self) -> tuple[float, float]:
        """CPU of single hosts while there was more than one: the lowest and the highest, but for 5 % of the time."""
        intervals = [interval for interval in self.trial.intervals if interval.hosts > 1]
        if not intervals:
            return 0.0, 0.0
        low = np.quantile([interval.load_low for interval in intervals], 0.05)
        high = np.quantile([interval.load_high for interval in intervals], 0.95)
        return float(low), float(high)


def ramp_load() -> LoadScenario:
    return LoadScenario("ramp 0 → 350 → 0 publications/s", ramp(), 15)


def day_load(trades: Path | None, seed: int) -> LoadScenario:
    """The recorded day, or a drawn one."""
    if trades is None:
        return LoadScenario("day (drawn, 20 times as fast)", trading_day(seed=seed), 8)
    return LoadScenario("day (recorded, 20 times as fast)", replay(_times_ms(trades)), 8)


def run_load_trial(
    load: LoadScenario, policy: str, *, seed: int, hosts_max: int = 15, progress: Callable[[int], None] | None = None
) -> LoadTrial:
    """One policy under one load, starting from one host; a static cluster has all hosts from the start."""
    config = PlacementConfig(policy=policy, hosts_max=hosts_max)
    hosts_at_start = min(load.hosts_static, hosts_max) if policy == "static" else 1
    return LoadTrial(
        load=load.name, trial=run_trial(load.curve, config, seed=seed, hosts_at_start=hosts_at_start, progress=progress)
    )


def _times_ms(trades: Path) -> np.ndarray:
    try:
        times_ms: np.ndarray = pq.read_table(trades, columns=["ms"]).column("ms").to_numpy()
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise InvalidValue(f"{trades} is no Parquet file with a column ms: {str(error).splitlines()[0]}") from None
    if not len(times_ms):
        raise InvalidValue(f"{trades} holds no trades")
    return times_ms
