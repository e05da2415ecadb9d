"""MinCost: the least cost that meets a response-time target (allocation paper, Algorithm 2).

Its loop runs while the target is *not* met, unlike as printed. The target may also be a percentile, or that of one job
type: then a consumer goes where it lowers that very figure most for its price, as `lavant.models.response_times`
predicts it. Finally, consumers that turn out to be unnecessary are removed: with different prices, the last step may
have bought more than was missing.

A plan serves the whole load, even if the target is about one job type: the response of the others may be anything
finite, but no topic's queue grows without bound.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from lavant.control.allocation.greedy import Greedy, changed
from lavant.control.allocation.plans import LOOP, AllocationPlan
from lavant.control.allocation.system.system import Consumers, System, Target
from lavant.core.decisions import Decision
from lavant.core.errors import Infeasible, InvalidValue
from lavant.models.evaluation import Model
from lavant.models.prediction import responses_s
from lavant.models.response_times import ResponseTimes

WORTHWHILE = 0.01
"""If a target is out of reach, consumers are added as long as one saves this share of the remainder."""


def min_cost(system: System, target: Target, *, start: Sequence[int] | None = None) -> AllocationPlan:
    """Add consumers until the target is met; raises if no allocation within the limits meets it."""
    plan = reach(system, target, start=start)
    if not plan.reached:
        system.require_stable()
        model = Model(system.network, refined=system.refined)
        raise Infeasible(
            f"the {target} cannot be {target.response_s:g} s: with the most consumers that the limits allow "
            f"({system.named(system.most)}) it is {measured_s(model, system.most, target):.2f} s"
        )
    return plan


def reach(system: System, target: Target, *, start: Sequence[int] | None = None) -> AllocationPlan:
    """Like `min_cost`, but if the target cannot be met, as far as consumers help."""
    if target.job is not None and target.job not in system.network.job_names:
        raise InvalidValue(f"there is no job type {target.job!r}; there are {', '.join(system.network.job_names)}")
    walk = Greedy(system, system.least if start is None else tuple(start))
    plain = target.percentile is None and target.job is None

    def value(consumers: Consumers) -> float:
        return measured_s(walk.model, consumers, target)

    def gain(consumers: Consumers, candidates: list[int]) -> list[float]:
        now = value(consumers)
        return [now - value(changed(consumers, j, 1)) for j in candidates]

    walk.stabilise(_always)
    share = 0.0 if value(system.most) <= target.response_s else WORTHWHILE
    while walk.stable and (now := value(walk.consumers)) > target.response_s:
        least = share * (now * system.network.arrival_rate_per_s if plain else now)
        if not walk.improve(_always, walk.wip_gain if plain else gain, least=least):
            break
    reached = meets(walk.model, system, walk.consumers, target)
    if reached:
        _trim(walk, target)
    steps, found = walk.steps(), value(walk.consumers)
    last = steps[-1]
    figures = {"target_s": target.response_s, "predicted_s": found, "cost": last.cost, "wip": last.wip}
    if walk.stable:
        said = "meets" if reached else "cannot be brought to"
        reason = f"the {target} is predicted to be {found:.2f} s, which {said} {target.response_s:g} s"
    else:
        reason = "the limits do not allow enough consumers for the load; topics that lack most come first"
    decision = Decision(loop=LOOP, action=f"allocate {system.named(last.consumers)}", reason=reason, figures=figures)
    return AllocationPlan(consumers=last.consumers, decision=decision, steps=steps, reached=reached)


def measured_s(model: Model, consumers: Consumers, target: Target) -> float:
    """The predicted value of the target's figure."""
    if target.percentile is not None:
        return ResponseTimes(model, consumers).percentile_s(target.percentile, target.job)
    columns = model.evaluate(consumers)
    if target.job is None and all(job.is_route for job in model.network.jobs):
        return float(columns.response_s[0])
    of_jobs = responses_s(model, columns)[0].tolist()
    if target.job is not None:
        return float(of_jobs[model.network.job_names.index(target.job)])
    rates = [job.arrival_rate_per_s for job in model.network.jobs]
    return math.fsum(map(operator.mul, rates, of_jobs)) / math.fsum(rates)


def meets(model: Model, system: System, consumers: Consumers, target: Target) -> bool:
    """Whether the target is predicted to hold and every topic, including those outside the target, can serve its
    load.
    """
    return system.can_serve(consumers) and measured_s(model, consumers, target) <= target.response_s


def _trim(walk: Greedy, target: Target) -> None:
    """Remove consumers while the target holds, the least useful for their price first."""
    system = walk.system
    while True:
        over = [j for j, m in enumerate(walk.consumers) if m > system.least[j]]
        spare = [j for j in over if meets(walk.model, system, changed(walk.consumers, j, -1), target)]
        if not spare:
            return
        losses = dict(zip(spare, walk.wip_loss(walk.consumers, spare), strict=True))
        saved = {j: system.price_of_next(j, walk.consumers[j] - 1) for j in spare}
        gone = min(spare, key=lambda j: (losses[j] / saved[j], j))
        name = system.network.topic_names[gone]
        walk.remove(gone, f"the target holds without it; topic {name} is where it is least missed for its price")


def _always(topic: int, consumers: Consumers) -> bool:
    return True
