"""Threshold: consumers by queue length, as KEDA's queue scalers and Kubernetes' HPA do. A baseline.

    ratio   = requests / (requests_per_consumer · consumers)         no change where it is within the tolerance of 1
    wanted  = ⌈requests / requests_per_consumer⌉                     within the limits
    growth  ≤ double, or four more, in one period
    decline to the most that was wanted within the stabilisation window

Requests in service count, as they do by default in KEDA's scalers for RabbitMQ and SQS. It knows neither rates nor
service times, and treats each topic separately.
"""

from __future__ import annotations

import math

from lavant.control.allocation.config import AllocationConfig
from lavant.control.allocation.plans import LOOP, AllocationPlan
from lavant.control.allocation.policies.interface import ObservedLoad
from lavant.control.allocation.policies.stabilization_window import StabilizationWindow
from lavant.control.allocation.system.system import Consumers, System
from lavant.core.decisions import Decision


class ThresholdAllocator:
    """Decides by queue lengths alone; ignores the goal."""

    name = "threshold"

    def __init__(self, system: System, config: AllocationConfig) -> None:
        self._system, self._config = system, config.threshold
        self._recent = StabilizationWindow(window_ms=self._config.scale_in_ms)
        self._grown_ms: int | None = None
        self._most: Consumers = system.most

    def decide(self, observed: ObservedLoad, now_ms: int) -> AllocationPlan:
        if self._grown_ms is None or now_ms - self._grown_ms >= self._config.period_ms:
            self._grown_ms = now_ms
            self._most = tuple(map(self._growth_limit, observed.consumers))
        wanted = tuple(map(self._wanted, observed.requests, observed.consumers))
        bounded = tuple(map(_clip, self._system.least, map(min, wanted, self._most), self._system.most))
        consumers = self._recent.most(bounded, now_ms)
        longest = max(range(len(consumers)), key=lambda j: (observed.requests[j] / max(consumers[j], 1), -j))
        name = self._system.network.topic_names[longest]
        reason = (
            f"{self._config.requests_per_consumer:g} requests a consumer are wanted; topic {name} has the most, "
            f"{observed.requests[longest]:g} for {observed.consumers[longest]}"
        )
        figures = {
            f"requests of {n}": r for n, r in zip(self._system.network.topic_names, observed.requests, strict=True)
        }
        action = f"allocate {self._system.named(consumers)}"
        decision = Decision(loop=LOOP, action=action, reason=reason, figures=figures, time_ms=now_ms)
        return AllocationPlan(consumers=consumers, decision=decision)

    def _wanted(self, requests: float, consumers: int) -> int:
        ratio = requests / (self._config.requests_per_consumer * max(consumers, 1))
        if consumers and abs(ratio - 1.0) <= self._config.tolerance:
            return consumers
        return math.ceil(requests / self._config.requests_per_consumer)

    def _growth_limit(self, consumers: int) -> int:
        return max(consumers + self._config.growth_least, math.floor(consumers * self._config.growth_factor))


def _clip(low: int, value: int, high: int) -> int:
    return max(low, min(high, value))
