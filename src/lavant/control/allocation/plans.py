"""Allocation plans: an allocation, and the steps that led to it, each with its reason and figures."""

from __future__ import annotations

import msgspec

from lavant.control.allocation.system.system import Consumers
from lavant.core.decisions import Decision

LOOP = "allocation"


class AllocationStep(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer more or less, and the model's prediction for the allocation after it."""

    consumers: Consumers
    wip: float
    response_s: float
    response_of_job_s: tuple[float, ...]
    cost: float
    decision: Decision


class AllocationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Consumers for each topic. `reached` says whether the goal is met, as far as the allocator can tell."""

    consumers: Consumers
    decision: Decision
    steps: tuple[AllocationStep, ...] = ()
    reached: bool = True

    @property
    def added(self) -> int:
        """Consumers added, less those removed."""
        return sum(self.consumers) - sum(self.steps[0].consumers) if self.steps else 0
