"""MinTime: the least response time that a budget can buy (allocation paper, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

from lavant.control.allocation.greedy import Greedy
from lavant.control.allocation.plans import LOOP, AllocationPlan
from lavant.control.allocation.system.system import Budget, Consumers, System
from lavant.core.decisions import Decision
from lavant.core.errors import Infeasible

ROUNDING = 1e-9
"""Prices are sums of doubles; a budget of 0.3 pays for three times 0.1."""


def min_time(system: System, budget: Budget, *, start: Sequence[int] | None = None) -> AllocationPlan:
    """Spend the budget, starting from the least allocation; raises if it cannot make all topics stable.

    Problem 1 of the paper asks for costs *equal* to the budget; here they may stay below it, where nothing more helps.
    """
    plan = spend(system, budget, start=start)
    if not plan.reached:
        system.require_stable()
        needed = system.least_stable
        raise Infeasible(
            f"needs at least {sum(needed)} consumers: {system.named(needed)}, at a cost of {system.cost(needed):g}; "
            f"the budget of {budget.additional:g} on top of {system.cost(system.least):g} does not pay for that"
        )
    return plan


def spend(system: System, budget: Budget, *, start: Sequence[int] | None = None) -> AllocationPlan:
    """Like `min_time`, but if the budget is too small, the most overloaded topics get what there is."""
    first = system.least if start is None else tuple(start)
    most = system.cost(first) + budget.additional + ROUNDING

    def affordable(topic: int, consumers: Consumers) -> bool:
        return system.cost(consumers) + system.price_of_next(topic, consumers[topic]) <= most

    walk = Greedy(system, first)
    walk.stabilise(affordable)
    if walk.stable:
        while walk.improve(affordable, walk.wip_gain):
            pass
    steps = walk.steps()
    last = steps[-1]
    figures = {"budget": budget.additional, "cost": last.cost, "wip": last.wip, "response_s": last.response_s}
    money = f"{budget.additional:g} on top of {system.cost(first):g}"
    if walk.stable:
        reason = f"{money} buys a response time of {last.response_s:.2f} s, and no less"
    else:
        reason = f"{money} cannot serve the load; topics that lack most come first"
    decision = Decision(loop=LOOP, action=f"allocate {system.named(last.consumers)}", reason=reason, figures=figures)
    return AllocationPlan(consumers=last.consumers, decision=decision, steps=steps, reached=walk.stable)
