"""Random: the paper's baseline. Each further consumer goes to a random topic, until the budget is spent or the target
met.

The draws are a fixed function of the seed and the number of the consumer, so that plans for a growing load continue
each other, as the paper's iterations do.
"""

from __future__ import annotations

from collections.abc import Iterator

from lavant.control.allocation.config import AllocationConfig
from lavant.control.allocation.greedy import changed
from lavant.control.allocation.min_cost import meets
from lavant.control.allocation.min_time import ROUNDING
from lavant.control.allocation.plans import LOOP, AllocationPlan
from lavant.control.allocation.policies.idle import IdleBudget
from lavant.control.allocation.policies.interface import ObservedLoad, expected
from lavant.control.allocation.policies.stabilization_window import StabilizationWindow
from lavant.control.allocation.system.system import Budget, Consumers, System, Target
from lavant.core.decisions import Decision
from lavant.models.evaluation import Model

DRAWS_MAX = 10_000
"""It gives up after so many consumers without meeting the target."""


class RandomAllocator:
    """Adds consumers at random."""

    name = "random"

    def __init__(self, system: System, config: AllocationConfig) -> None:
        self._system, self._config = system, config
        self._recent = StabilizationWindow(
            window_ms=config.hysteresis.scale_in_ms if isinstance(config.goal, Target) else 0
        )
        self._quiet = IdleBudget(act_above_s=config.act_above_s, window_ms=config.hysteresis.scale_in_ms)

    def decide(self, observed: ObservedLoad, now_ms: int) -> AllocationPlan:
        system, goal = expected(self._system, observed, self._config.caution), self._config.goal
        if isinstance(goal, Budget):
            if self._quiet.is_quiet(system, observed, now_ms):
                return self._quiet.plan(self._system, now_ms)
            consumers = self._spend(goal)
            reached = system.can_serve(consumers)
        else:
            consumers, reached = self._reach(system, goal)
        consumers = self._recent.most(consumers, now_ms)
        decision = Decision(
            loop=LOOP,
            action=f"allocate {system.named(consumers)}",
            reason=f"{sum(consumers) - sum(self._system.least)} consumers more than the least, to topics at random",
            figures={"cost": system.cost(consumers)},
            time_ms=now_ms,
        )
        return AllocationPlan(consumers=consumers, decision=decision, reached=reached)

    def _spend(self, budget: Budget) -> tuple[int, ...]:
        most = self._system.cost(self._system.least) + budget.additional + ROUNDING
        consumers = self._system.least
        for following in self.walk():
            if self._system.cost(following) > most:
                break
            consumers = following
        return consumers

    def _reach(self, system: System, target: Target) -> tuple[Consumers, bool]:
        model, consumers = Model(system.network, refined=system.refined), system.least
        for following in self.walk():
            floored = tuple(map(max, following, system.least))
            if meets(model, system, consumers, target):
                return consumers, True
            consumers = floored
        return consumers, meets(model, system, consumers, target)

    def walk(self) -> Iterator[Consumers]:
        """Allocations with one consumer more each, at most `DRAWS_MAX`, within the limits."""
        consumers, most = self._system.least, self._system.most
        for number in range(DRAWS_MAX):
            room = [j for j, m in enumerate(consumers) if m < most[j]]
            if not room:
                return
            consumers = changed(consumers, room[_draw(self._config.seed, number) % len(room)], 1)
            yield consumers


def _draw(seed: int, number: int) -> int:
    """A well-mixed number (the finaliser of SplitMix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1342543DE82EF95) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return (x ^ (x >> 31)) >> 16
