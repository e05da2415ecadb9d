"""MinTime as a control loop: spends the budget where it helps most under the measured load."""

from __future__ import annotations

import math

import msgspec

from lavant.control.allocation.config import AllocationConfig
from lavant.control.allocation.min_time import ROUNDING, spend
from lavant.control.allocation.plans import LOOP, AllocationPlan
from lavant.control.allocation.policies.idle import IdleBudget
from lavant.control.allocation.policies.interface import ObservedLoad, expected
from lavant.control.allocation.system.system import Budget, Consumers, System
from lavant.core.decisions import Decision
from lavant.core.errors import InvalidValue
from lavant.models.evaluation import Model


class MinTimeAllocator:
    """Spends the whole budget, or nothing while idle (Section II of the paper: rescheduling is done when the response
    time is above a threshold). Consumers change topics only for a sufficient gain.

    Waiting requests do not raise the least allocation here: the budget is all there is.
    """

    name = "min-time"

    def __init__(self, system: System, config: AllocationConfig) -> None:
        if not isinstance(config.goal, Budget):
            raise InvalidValue(f"min-time needs a budget, got {config.goal}")
        self._system, self._budget = system, config.goal
        self._caution = msgspec.structs.replace(config.caution, drain_s=None)
        self._tolerance = config.hysteresis.tolerance
        self._quiet = IdleBudget(act_above_s=config.act_above_s, window_ms=config.hysteresis.scale_in_ms)

    def decide(self, observed: ObservedLoad, now_ms: int) -> AllocationPlan:
        system = expected(self._system, observed, self._caution)
        if self._quiet.is_quiet(system, observed, now_ms):
            return self._quiet.plan(self._system, now_ms)
        plan = spend(system, self._budget)
        kept = self._worth_keeping(system, observed.consumers, plan)
        plan = plan if kept is None else kept
        return msgspec.structs.replace(plan, decision=msgspec.structs.replace(plan.decision, time_ms=now_ms))

    def _worth_keeping(self, system: System, present: Consumers, plan: AllocationPlan) -> AllocationPlan | None:
        """The present allocation, if it is within the limits and the budget and nearly as good as the best."""
        low, high = system.least, system.most
        if present == plan.consumers or not all(map(_between, low, present, high)):
            return None
        if system.cost(present) > system.cost(low) + self._budget.additional + ROUNDING:
            return None
        model = Model(system.network, refined=system.refined)
        now, then = model.weighted_wip(model.evaluate([present, plan.consumers])).tolist()
        if not math.isfinite(now) or now > then * (1.0 + self._tolerance):
            return None
        reason = f"{system.named(plan.consumers)} would save {now - then:.3g} of {now:.3g} requests: not worth a change"
        decision = Decision(loop=LOOP, action="keep", reason=reason, figures={"wip": now, "wip_best": then})
        return AllocationPlan(consumers=present, decision=decision, reached=plan.reached)


def _between(low: int, value: int, high: int) -> bool:
    return low <= value <= high
