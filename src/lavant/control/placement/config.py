"""Configuration of the placement loop, with all defaults and validation.

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
    """CPU shares between which no action is needed."""

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
    """The resources of one host. `cpu` is in the unit of the probes: 1.0 for shares of a host, 8 for cores."""

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
    """Settings of the `forecast` policy."""

    half_life_ms: int = 25_000
    """Of a sample's weight in the trend."""
    trend_errors: float = 3.0
    """The trend's slope is shrunk towards zero by so many standard errors."""
    lead_ms: int = 30_000
    """Forecast horizon: about the start of a host and some moves."""
    look_back_ms: int = 60_000
    """The load must have been low this long before hosts are released, unless it is certainly falling."""
    rest_ms: int = 60_000
    """After an addition, no host is released for this long."""
    average: Band = Band(0.28, 0.70)
    """Expected averages outside it add or release hosts."""
    host: Band = Band(0.22, 0.76)
    """Expected loads of single hosts outside it move slices."""
    grow_target: float = 0.54
    """The expected average after an addition."""
    shrink_target: float = 0.54
    """The expected average after a release."""
    shrink_host_max: float = 0.62
    """A release fills other hosts up to here."""
    fill_low: float = 0.26
    fill_high: float = 0.62
    """Hosts between the two are balanced enough."""
    spread: float = 0.10
    """Hosts this near to the average are balanced enough too."""
    move_cost: float = 0.01
    """Of one move, in the unit of the imbalance (squared CPU)."""
    state_cost_per_gib: float = 0.1
    """Of moving one GiB of state, likewise."""
    saturated_factor: float = 1.6
    """A saturated host is assumed to be offered so many times its measured load."""

    def __post_init__(self) -> None:
        for name in ("half_life_ms", "lead_ms", "grow_target", "shrink_target", "shrink_host_max"):
            _require_positive(f"forecast {name}", getattr(self, name))
        for name in ("trend_errors", "look_back_ms", "rest_ms", "spread", "move_cost", "state_cost_per_gib"):
            _require_not_negative(f"forecast {name}", getattr(self, name))
        if not self.saturated_factor >= 1:
            raise InvalidValue(f"forecast saturated_factor must be 1 or more, got {self.saturated_factor}")
        if not 0 <= self.fill_low < self.fill_high <= 1:
            raise InvalidValue(
                f"forecast fill_low and fill_high must be 0 ≤ fill_low < fill_high ≤ 1, "
                f"got {self.fill_low} and {self.fill_high}"
            )


class PlacementConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole loop. `policy` is a name in `registry.POLICIES`."""

    policy: str = "forecast"
    rules: Rules = Rules()
    forecast: ForecastConfig = ForecastConfig()
    capacity: HostCapacity = HostCapacity()
    hosts_min: int = 1
    hosts_max: int = 30
    plan_ms_max: int = 120_000
    """A plan that the probes do not confirm in this time is abandoned."""
    probe_gap_ms_max: int = 15_000
    """A longer gap between probes breaks the window: nothing is known about the time between."""
    host_prefix: str = "host"
    """Added hosts are named `host-0001`, `host-0002` and so on; names are never reused."""

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
