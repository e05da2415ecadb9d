"""Settings of balancing: whether it is on, the policy, and what this broker can take."""

from __future__ import annotations

import math

import msgspec

from lavant.control.balancing.policies.registry import DEFAULT_POLICY
from lavant.core.errors import InvalidValue


class BrokerCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What this broker can take, as far as the operator says it."""

    bandwidth_bytes_per_s: float | None = None
    """None for the one that is seen."""
    matching_rate_per_s: float | None = None
    """Publications times subscriptions that are matched a second, at most; None for as many as the machine can."""

    def __post_init__(self) -> None:
        bandwidth = self.bandwidth_bytes_per_s
        if bandwidth is not None and not bandwidth > 0:
            raise InvalidValue(f"--bandwidth must be positive, got {bandwidth:g} bytes a second")
        rate = self.matching_rate_per_s
        if rate is not None and not (rate > 0 and math.isfinite(rate)):
            raise InvalidValue(f"--matching-rate must be positive, got {rate:g}; leave it out for no limit")


class BalancingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker balances."""

    is_on: bool = False
    """At the start; `lavant federation balance` changes it."""
    policy: str = DEFAULT_POLICY
    capacity: BrokerCapacity = BrokerCapacity()
