"""The system to allocate: a network, the cost and limits of consumers, and the goal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec

from lavant.control.allocation.system.costs import Cost, Linear
from lavant.core.errors import Infeasible, InvalidValue
from lavant.models.evaluation import CONSUMERS_MAX
from lavant.models.network import Network

Consumers: TypeAlias = tuple[int, ...]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The least and most consumers of a topic."""

    least: int = 1
    most: int = 1000

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most <= CONSUMERS_MAX:
            raise InvalidValue(
                f"consumers of a topic must be 1 ≤ least ≤ most ≤ {CONSUMERS_MAX}, got {self.least} and {self.most}"
            )


class Budget(msgspec.Struct, frozen=True, kw_only=True, tag="Budget"):
    """Least response time for a cost of so much more than the least allocation (the paper's M, as it is used)."""

    additional: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.additional) and self.additional >= 0):
            raise InvalidValue(f"a budget is a number from 0 on, got {self.additional}")


class Target(msgspec.Struct, frozen=True, kw_only=True, tag="Target"):
    """Least cost for a response time: the mean, or a percentile; of one job type or all."""

    response_s: float
    percentile: float | None = None
    job: str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.response_s) and self.response_s > 0):
            raise InvalidValue(f"a target's response_s must be positive, got {self.response_s}")
        if self.percentile is not None and not 0 < self.percentile < 1:
            raise InvalidValue(f"a target's percentile is a fraction such as 0.95, got {self.percentile}")

    def __str__(self) -> str:
        what = "mean response" if self.percentile is None else f"p{self.percentile * 100:g} of the response"
        return f"{what} of {'all jobs' if self.job is None else f'job type {self.job}'}"


Goal: TypeAlias = Budget | Target


class System(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A network with costs and limits, one for each topic, in its order; by default each consumer costs 1."""

    network: Network
    costs: tuple[Cost, ...] = ()
    limits: tuple[Limits, ...] = ()
    refined: bool = True
    """Predict with Whitt's refinement; otherwise with the paper's Eq. 2."""

    def __post_init__(self) -> None:
        for name, given in (("costs", self.costs), ("limits", self.limits)):
            if given and len(given) != len(self.network.topics):
                raise InvalidValue(f"{len(given)} {name} for {len(self.network.topics)} topics; give one for each")

    def cost(self, consumers: Sequence[int]) -> float:
        return math.fsum(cost.of(m) for cost, m in zip(self.all_costs, consumers, strict=True))

    def price_of_next(self, topic: int, consumers: int) -> float:
        """F_j(m + 1) − F_j(m)."""
        return self.all_costs[topic].of(consumers + 1) - self.all_costs[topic].of(consumers)

    @cached_property
    def all_costs(self) -> tuple[Cost, ...]:
        return self.costs if self.costs else (Linear(),) * len(self.network.topics)

    @cached_property
    def least(self) -> Consumers:
        return tuple(limit.least for limit in self._limits)

    @cached_property
    def most(self) -> Consumers:
        return tuple(limit.most for limit in self._limits)

    @cached_property
    def _limits(self) -> tuple[Limits, ...]:
        return self.limits if self.limits else (Limits(),) * len(self.network.topics)

    @cached_property
    def least_stable(self) -> Consumers:
        """The fewest consumers that can do the work; respects only the lower limits."""
        return tuple(max(low, int(load) + 1) for low, load in zip(self.least, self.network.offered_load, strict=True))

    def can_serve(self, consumers: Sequence[int]) -> bool:
        """Whether every topic has more consumers than its load needs, so that no queue grows without bound."""
        return all(load < m for load, m in zip(self.network.offered_load, consumers, strict=True))

    def named(self, consumers: Sequence[int]) -> str:
        """An allocation as text: "A 2, B 1"."""
        return ", ".join(f"{name} {m}" for name, m in zip(self.network.topic_names, consumers, strict=True))

    def require_stable(self) -> None:
        """Raise if the limits leave a topic with less than its load needs."""
        rows = zip(self.network.topic_names, self.least_stable, self.most, self.network.offered_load, strict=True)
        for name, needed, most, load in rows:
            if needed > most:
                raise Infeasible(
                    f"topic {name!r} needs at least {needed} consumers for a load of {load:.2f}, its limit is {most}; "
                    "raise the limit, its service rate, or send it less"
                )
