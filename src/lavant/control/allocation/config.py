"""Configuration of the allocation loop, with all defaults."""

from __future__ import annotations

import math

import msgspec

from lavant.control.allocation.system.system import Budget, Goal
from lavant.core.errors import InvalidValue


def require_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise InvalidValue(f"{name} is a share and must lie in 0 to 1, got {value}")


class Hysteresis(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps allocations from following the noise of measurements. Scaling out is immediate."""

    scale_in_ms: int = 180_000
    """A topic keeps a consumer until it was unneeded for this long."""
    tolerance: float = 0.05
    """A budget is redistributed only if that removes more than this share of the requests in the network."""

    def __post_init__(self) -> None:
        if self.scale_in_ms < 0:
            raise InvalidValue(f"scale_in_ms must be 0 or more, got {self.scale_in_ms}")
        require_share("tolerance", self.tolerance)


class Caution(msgspec.Struct, frozen=True, kw_only=True):
    """Safety margins added to the measured means."""

    standard_errors: float = 0.0
    """Rates are counts over a window; so many of their standard errors are added."""
    drain_s: float | None = 30.0
    """Waiting requests must be worked off within this time, besides new arrivals; None ignores them."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.standard_errors) and self.standard_errors >= 0):
            raise InvalidValue(f"standard_errors must be a number from 0 on, got {self.standard_errors}")
        if self.drain_s is not None and not self.drain_s > 0:
            raise InvalidValue(f"drain_s must be positive, got {self.drain_s}; omit it to ignore queues")


class QueueThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the `threshold` allocator; the defaults are those of Kubernetes' HPA, with KEDA's metric."""

    requests_per_consumer: float = 5.0
    tolerance: float = 0.1
    """A ratio of actual to desired this close to 1 changes nothing."""
    scale_in_ms: int = 300_000
    """The stabilisation window for scaling in; there is none for scaling out."""
    period_ms: int = 15_000
    growth_factor: float = 2.0
    growth_least: int = 4
    """In one period a topic at most doubles, or gets four consumers, whichever is more."""

    def __post_init__(self) -> None:
        if not self.requests_per_consumer > 0:
            raise InvalidValue(f"requests_per_consumer must be positive, got {self.requests_per_consumer}")
        require_share("tolerance", self.tolerance)
        if self.scale_in_ms < 0 or self.period_ms < 1 or self.growth_factor < 1 or self.growth_least < 1:
            raise InvalidValue("a threshold's windows are not negative, and it grows by at least one consumer")


class AllocationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole loop. `allocator` is a name in `registry.ALLOCATORS`."""

    allocator: str = "min-cost"
    goal: Goal = Budget(additional=0.0)
    act_above_s: float | None = None
    """`min-time` and `random` spend a budget only while the response would be longer than this without it."""
    hysteresis: Hysteresis = Hysteresis()
    caution: Caution = Caution()
    threshold: QueueThreshold = QueueThreshold()
    seed: int = 0
    """For the `random` allocator."""
