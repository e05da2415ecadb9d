"""MinCost as a control loop: the least cost that meets the target under the measured load."""

from __future__ import annotations

import msgspec

from lavant.control.allocation.config import AllocationConfig
from lavant.control.allocation.min_cost import reach
from lavant.control.allocation.plans import AllocationPlan
from lavant.control.allocation.policies.interface import ObservedLoad, expected
from lavant.control.allocation.policies.stabilization_window import StabilizationWindow
from lavant.control.allocation.system.system import System, Target
from lavant.core.errors import InvalidValue


class MinCostAllocator:
    """Scales out at once, and removes consumers that were unneeded during the whole scale-in window.

    Each plan starts from the least allocation, not from the present one: this gives the least cost, and a topic whose
    load is gone releases its consumers.
    """

    name = "min-cost"

    def __init__(self, system: System, config: AllocationConfig) -> None:
        if not isinstance(config.goal, Target):
            raise InvalidValue(f"min-cost needs a target for the response time, got {config.goal}")
        self._system, self._target, self._caution = system, config.goal, config.caution
        self._recent = StabilizationWindow(window_ms=config.hysteresis.scale_in_ms)

    def decide(self, observed: ObservedLoad, now_ms: int) -> AllocationPlan:
        plan = reach(expected(self._system, observed, self._caution), self._target)
        consumers = self._recent.most(plan.consumers, now_ms)
        decision = plan.decision
        reason = decision.reason
        if consumers != plan.consumers:
            reason += f"; {self._system.named(plan.consumers)} would do, but more was needed a short while ago"
        decision = msgspec.structs.replace(
            decision, action=f"allocate {self._system.named(consumers)}", reason=reason, time_ms=now_ms
        )
        return msgspec.structs.replace(plan, consumers=consumers, decision=decision)
