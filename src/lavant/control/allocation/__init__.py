"""Consumers per topic: the least response time for a budget, or the least cost for a response time.

P. Nguyen, K. Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems". `min_time` and `min_cost` plan;
an `Allocator` does so again and again, with what was measured, and with hysteresis.
"""

from lavant.control.allocation.allocators import ALLOCATORS, allocator_for
from lavant.control.allocation.config import AllocationConfig, Caution, Hysteresis, QueueThreshold
from lavant.control.allocation.costs import Cost, Linear, Power, Prices
from lavant.control.allocation.interface import Allocator, Observed
from lavant.control.allocation.min_cost import min_cost
from lavant.control.allocation.min_time import min_time
from lavant.control.allocation.plans import Plan, Step
from lavant.control.allocation.scheduling import Schedule, ScheduleConfig
from lavant.control.allocation.system import Budget, Consumers, Goal, Limits, System, Target

__all__ = [
    "ALLOCATORS",
    "AllocationConfig",
    "Allocator",
    "Budget",
    "Caution",
    "Consumers",
    "Cost",
    "Goal",
    "Hysteresis",
    "Limits",
    "Linear",
    "Observed",
    "Plan",
    "Power",
    "Prices",
    "QueueThreshold",
    "Schedule",
    "ScheduleConfig",
    "Step",
    "System",
    "Target",
    "allocator_for",
    "min_cost",
    "min_time",
]
