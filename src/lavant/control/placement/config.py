"""The placement loop's configuration: all defaults are here, and what cannot work is refused with the reason.

Defaults of the rules are those of e-StreamHub, Section V: the average CPU of all hosts within [30 %, 70 %], that of
each host within [20 %, 80 %], both over 30 s; a target of 50 %; 30 s of grace between two decisions. Hosts have 8 GB
and 1 Gbit/s as in its Section VI-A.
"""

from __future__ import annotations

import math

import msgspec

from lavant.core.errors import InvalidValue


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValue(f"{name} must be positive, got {value}")


def _require_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValue(f"{name} must be 0 or more, got {value}")


class Band(msgspec.Struct, frozen=True):
    """CPU shares between which nothing needs to be done."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise InvalidValue(f"a band must lie in 0 ≤ low < high ≤ 1, got [{self.low}, {self.high}]")

    def __contains__(self, cpu: float) -> bool:
        return self.low <= cpu <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.0%}, {self.high:.0%}]"


class HostCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What one host has. `cpu` is in the unit of the probes: 1.0 if they report shares of a host, 8 if cores."""

    cpu: float = 1.0
    memory_bytes: int = 8 * 1024**3
    network_bytes_per_s: float = 125e6

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_bytes", "network_bytes_per_s"):
            _require_positive(f"host capacity {name}", getattr(self, name))


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """When to act, and what to aim at. A rule is violated only if it was during the whole window."""

    average: Band = Band(0.30, 0.70)
    host: Band = Band(0.20, 0.80)
    target: float = 0.50
    window_ms: int = 30_000
    grace_ms: int = 30_000

    def __post_init__(self) -> None:
        if not (self.target > 0 and self.target in self.average and self.target in self.host):
            raise InvalidValue(
                f"the target must lie within the bands {self.average} and {self.host}, got {self.target}; "
                "otherwise reaching it would violate a rule"
            )
        _require_positive("rules window_ms", self.window_ms)
        _require_not_negative("rules grace_ms", self.grace_ms)


class ForecastConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What only the `forecast` policy uses; the module `forecast` says what each does."""

    half_life_ms: int = 25_000
    trend_errors: float = 4.0
    lead_ms: int = 25_000
    far_lead_ms: int = 40_000
    look_back_ms: int = 60_000
    rest_ms: int = 60_000
    average: Band = Band(0.28, 0.70)
    host: Band = Band(0.22, 0.76)
    grow_target: float = 0.51
    growth_max: float = 1.4
    shrink_target: float = 0.54
    shrink_host_max: float = 0.62
    fill_low: float = 0.32
    fill_high: float = 0.62
    spread: float = 0.10
    move_cost: float = 0.01
    state_cost_per_gib: float = 0.1
    saturated_factor: float = 1.6

    def __post_init__(self) -> None:
        for name in ("half_life_ms", "lead_ms", "far_lead_ms"):
            _require_positive(f"forecast {name}", getattr(self, name))
        for name in ("rest_ms", "move_cost", "state_cost_per_gib"):
            _require_not_negative(f"forecast {name}", getattr(self, name))
        for name in ("growth_max", "saturated_factor"):
            if not getattr(self, name) >= 1:
                raise InvalidValue(f"forecast {name} must be 1 or more, got {getattr(self, name)}")
        if self.far_lead_ms < self.lead_ms:
            raise InvalidValue(f"forecast far_lead_ms must be at least lead_ms {self.lead_ms}, got {self.far_lead_ms}")


class PlacementConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole loop. `policy` is a name in `policies.POLICIES`."""

    policy: str = "forecast"
    rules: Rules = Rules()
    forecast: ForecastConfig = ForecastConfig()
    capacity: HostCapacity = HostCapacity()
    hosts_min: int = 1
    hosts_max: int = 30
    plan_ms_max: int = 120_000
    """A plan that the probes do not confirm in this time is given up."""
    probe_gap_ms_max: int = 15_000
    """A longer silence of the probes breaks the window: nothing is known about the time between."""
    host_prefix: str = "host"
    """Added hosts are named `host-0001`, `host-0002` and so on; no name is given twice."""

    def __post_init__(self) -> None:
        if not 1 <= self.hosts_min <= self.hosts_max:
            raise InvalidValue(
                f"hosts_min and hosts_max must be 1 ≤ hosts_min ≤ hosts_max, got {self.hosts_min} and {self.hosts_max}"
            )
        for name in ("plan_ms_max", "probe_gap_ms_max"):
            _require_positive(name, getattr(self, name))
        if self.forecast.average.high > self.rules.host.high:
            raise InvalidValue(
                f"forecast average.high {self.forecast.average.high} is above what one host may have, "
                f"{self.rules.host.high}; hosts would be overloaded before one is added"
            )
